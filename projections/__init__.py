"""What it means: pure folds over events, and the questions asked of them."""

from rewake.projections.fold import PROJECTIONS, Projection, fold
from rewake.projections.tables import tables
from rewake.projections.verifying import Verification, verify

__all__ = ["PROJECTIONS", "Projection", "Verification", "fold", "tables", "verify"]
