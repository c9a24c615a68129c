//! The conversation API over real HTTP: projects, branches, nodes, turns and runs, with strict
//! simulators as providers.

#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod support;
mod tables;

mod accounts;
mod both_stores;
mod branches;
mod broken_turns;
mod bus;
mod documentation;
mod edges;
mod instances;
mod keys;
mod killed_servers;
mod native_turns;
mod node_count;
mod open_calls;
mod projects;
mod random_cuts;
mod raw_replies;
mod regenerated;
mod rooms;
mod runs;
mod sealed;
mod swapped_rows;
mod switching;
mod tools;
mod tutorial;
mod two_writers;
