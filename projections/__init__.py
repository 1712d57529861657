"""What it means: pure folds over events, and the questions asked of them."""
