//! Stores behind the gateway, one folder for each product. No decisions live here: a store that
//! needs to know why something is written shows that a trait lacks a method.

pub mod sqlite;
