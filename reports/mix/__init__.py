"""What samplers ask for: tables, figures, and their part of a page."""
