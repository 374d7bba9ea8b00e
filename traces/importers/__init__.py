"""Importers: one file per format, each turning a source into frames of canonical columns."""
