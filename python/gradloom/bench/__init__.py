"""Times the ops from Python beside this machine's roof, numpy and PyTorch: `python -m gradloom.bench --help`."""
