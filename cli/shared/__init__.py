"""What commands share: options, progress, output."""
