"""The Linux backend: a ptrace supervisor, and readers of the stopped process."""
