"""gradloom in PyTorch."""

from gradloom.torch._override import OpStats, Stats, disable, enable, enabled, stats

__all__ = ["OpStats", "Stats", "disable", "enable", "enabled", "stats"]
