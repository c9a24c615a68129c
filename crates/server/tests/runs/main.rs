//! Runs of front ends: replies that go on without their client, and streams that are resumed.

mod lifecycle;
mod resume;
mod support;
