//! Which names this server answers to. A page in a browser can point a name of its own at a
//! loopback address; a foreign `Host` gives it away.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header};

/// The names this server answers to.
#[derive(Clone, Debug)]
pub struct Hosts {
    listen: SocketAddr,
    allowed: Vec<String>,
}

impl Hosts {
    /// Loopback names, the address it listens on, and these.
    pub fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        Self { listen, allowed: allowed.to_vec() }
    }

    /// Whether a request was meant for this server.
    pub fn meant(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = uri
            .authority()
            .map(|authority| authority.as_str().to_owned())
            .or_else(|| Some(headers.get(header::HOST)?.to_str().ok()?.to_owned()));
        match (named, headers.contains_key(header::HOST)) {
            (Some(host), _) => self.is_ours(&host),
            // A name we cannot read is not ours; no name at all is an old but honest client.
            (None, present) => !present,
        }
    }

    /// Whether a request comes from a page that is not our own.
    pub fn foreign_page(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return false;
        };
        let host = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.parse::<Uri>().ok())
            .and_then(|origin| Some(origin.authority()?.as_str().to_owned()));
        !host.is_some_and(|host| self.is_ours(&host))
    }

    fn is_ours(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if address.is_loopback() || address == self.listen.ip() => true,
            _ => {
                name == "localhost"
                    || self.allowed.iter().any(|allowed| *allowed == name || *allowed == host)
            }
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(host: Option<&'static str>) -> bool {
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &["gateway.lan".to_owned()]);
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, http::HeaderValue::from_static(host));
        }
        hosts.meant(&Uri::from_static("/v1/messages"), &headers)
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8484",
            "127.0.0.1:8484",
            "127.9.9.9",
            "[::1]:8484",
            "[::1]",
            "gateway.lan",
            "gateway.lan:80",
        ] {
            assert!(meant(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8484",
            "10.0.0.1",
            "",
        ] {
            assert!(!meant(Some(host)), "{host}");
        }
        assert!(meant(None));
    }

    #[test]
    fn pages_from_elsewhere_are_told() {
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &[]);
        let with = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, http::HeaderValue::from_static(origin));
            hosts.foreign_page(&headers)
        };
        assert!(!with("http://127.0.0.1:8484"));
        assert!(with("https://evil.example"));
        assert!(with("null"));
        assert!(!hosts.foreign_page(&HeaderMap::new()));
    }
}
