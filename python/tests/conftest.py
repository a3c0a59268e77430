import os

# Before gradloom is imported: kernels of these tests are compiled, not read from an earlier run's cache.
os.environ.setdefault("GRADLOOM_CACHE_DIR", "off")
