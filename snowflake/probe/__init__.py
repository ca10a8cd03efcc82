"""The stability probe: the largest learning rate at which each way to write attention still trains."""
