//! The scheduler daemon: watches into scheduling, decisions into API writes.
