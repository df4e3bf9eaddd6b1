"""The guard, part of the supervisor: watches over files that no mount can protect, before the user's programs run them."""
