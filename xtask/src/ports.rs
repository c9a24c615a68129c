//! Finds free loopback ports and waits until a server answers on one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;

/// Finds a loopback address that is free now.
///
/// Another process may take it before our child does. The child then fails to start and the run
/// fails, which is rare enough.
pub(crate) fn free() -> Result<SocketAddr, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("cannot find a free loopback port: {error}"))
}

/// Waits until `GET path` answers 200.
pub(crate) fn wait_until_ready(
    name: &str,
    address: SocketAddr,
    path: &str,
    limit: Duration,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut last = String::from("no connection");
    while started.elapsed() < limit {
        match status_line(address, path) {
            Ok(line) if line.contains(" 200") => return Ok(()),
            Ok(line) => last = line,
            Err(error) => last = error.to_string(),
        }
        #[expect(clippy::disallowed_methods, reason = "no task runs on this thread")]
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "{name} did not answer 200 on http://{address}{path} within {limit:?} (last: {last})"
    ))
}

fn status_line(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let timeout = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut reply = [0_u8; 512];
    let length = stream.read(&mut reply)?;
    let text = String::from_utf8_lossy(&reply[..length]);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
