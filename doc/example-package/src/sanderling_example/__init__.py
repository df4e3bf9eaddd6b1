"""A tool and a provider for Sanderling."""
