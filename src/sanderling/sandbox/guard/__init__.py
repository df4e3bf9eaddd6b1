"""The guard, in the supervisor: it holds names that no mount can protect, and undoes what would run when the person opens the project."""
