//! Implementations of the gateway's stores and of the bus, one folder per product. They make no decisions: a store
//! that needs to know why something is written shows that its trait lacks a method.

pub mod postgres;
pub mod redis;
mod sql;
pub mod sqlite;
