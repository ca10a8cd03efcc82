"""Where a training step spends its time, how far it is from what the hardware allows, and which settings suit it."""
