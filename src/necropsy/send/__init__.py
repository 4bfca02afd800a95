"""Sends crashes to other systems: OpenTelemetry, Sentry, or any service that takes JSON; on command only."""
