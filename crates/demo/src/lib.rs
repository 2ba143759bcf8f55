//! The product pages' walk-through as a program: eight runs, their placements and speeds beside the published ones.
