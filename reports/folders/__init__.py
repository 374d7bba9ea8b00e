"""What --out writes: one file a kind of result."""
