//! Checks any cluster state for double allocation, partial gangs and annotations that do not match.
