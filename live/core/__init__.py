"""The live half that knows no trainer: rows, decisions, capture, proof, promotion, verification."""
