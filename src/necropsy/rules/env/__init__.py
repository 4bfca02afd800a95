"""Rules on an environment: what is wrong with it before anything has died of it."""
