"""A trace on disk: steps in Parquet files, a manifest, checksums."""
