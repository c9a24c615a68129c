//! Implementations of the gateway's stores, one folder per product. They make no decisions: a store
//! that needs to know why something is written shows that its trait lacks a method.

pub mod postgres;
mod sql;
pub mod sqlite;
