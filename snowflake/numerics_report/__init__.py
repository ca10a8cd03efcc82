"""What low precision did to a run: scales, rounding and formats by layer over training, from its event files."""
