//! Whatever is said to a node, its memory stays bounded and others feel nothing.
