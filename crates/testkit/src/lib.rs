//! Seeded network, conformance suite and fault injection for CCI's tests.
