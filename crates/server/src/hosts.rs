//! Which host names this server answers to. A web page can point a DNS name of its own at a loopback
//! address (DNS rebinding); the unknown name in `Host` reveals it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header};

/// The host names this server answers to.
#[derive(Clone, Debug)]
pub struct Hosts {
    listen: SocketAddr,
    allowed: Vec<String>,
}

impl Hosts {
    /// Allows loopback names, the listen address, and the names in `allowed`.
    pub fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        Self { listen, allowed: allowed.to_vec() }
    }

    /// Whether a request names a host that this server answers to.
    pub fn is_allowed_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let host = uri
            .authority()
            .map(|authority| authority.as_str().to_owned())
            .or_else(|| Some(headers.get(header::HOST)?.to_str().ok()?.to_owned()));
        match (host, headers.contains_key(header::HOST)) {
            (Some(host), _) => self.is_ours(&host),
            // An unreadable name is not ours. Old clients send no name at all, browsers always do.
            (None, present) => !present,
        }
    }

    /// Whether a request comes from a web page of another origin. Other servers on this machine are
    /// other origins: only host *and* port say that a page is ours.
    pub fn is_cross_origin(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return false;
        };
        let page = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.parse::<Uri>().ok())
            .and_then(|origin| Some(origin.authority()?.as_str().to_ascii_lowercase()));
        let Some(page) = page else {
            return true;
        };
        // The page was loaded from the address that it now calls. `is_allowed_host` has checked it.
        let called = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let same = called.is_some_and(|called| called.eq_ignore_ascii_case(&page));
        // A proxy may have replaced the address that the page calls.
        let proxied = self.allowed.contains(&page);
        let at_our_port = port(&page) == Some(self.listen.port()) && self.is_ours(&page);
        !(same || proxied || at_our_port)
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

fn port(host: &str) -> Option<u16> {
    host.strip_prefix(without_port(host))?.strip_prefix(':')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(host: Option<&'static str>) -> bool {
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &["gateway.lan".to_owned()]);
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, http::HeaderValue::from_static(host));
        }
        hosts.is_allowed_host(&Uri::from_static("/v1/messages"), &headers)
    }

    #[test]
    fn only_own_host_names_are_allowed() {
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
            assert!(is_allowed(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8484",
            "10.0.0.1",
            "",
        ] {
            assert!(!is_allowed(Some(host)), "{host}");
        }
        assert!(is_allowed(None));
    }

    #[test]
    fn only_pages_of_this_server_are_of_its_origin() {
        let allowed = ["gateway.lan".to_owned()];
        let hosts = Hosts::new("127.0.0.1:8484".parse().unwrap(), &allowed);
        let is_cross_origin = |origin: &'static str, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, http::HeaderValue::from_static(origin));
            headers.insert(header::HOST, http::HeaderValue::from_static(host));
            hosts.is_cross_origin(&headers)
        };
        for (origin, host) in [
            ("http://127.0.0.1:8484", "127.0.0.1:8484"),
            ("http://LOCALHOST:8484", "127.0.0.1:8484"),
            ("http://[::1]:8484", "localhost:8484"),
            // A forwarded port, and a proxy that keeps or replaces the host.
            ("http://localhost:9000", "localhost:9000"),
            ("https://gateway.lan", "gateway.lan"),
            ("https://gateway.lan", "127.0.0.1:8484"),
        ] {
            assert!(!is_cross_origin(origin, host), "{origin} calls {host}");
        }
        for (origin, host) in [
            ("http://127.0.0.1:3000", "127.0.0.1:8484"),
            ("http://localhost:3000", "localhost:8484"),
            ("http://localhost", "localhost:8484"),
            ("http://gateway.lan:3000", "gateway.lan"),
            ("https://evil.example", "127.0.0.1:8484"),
            ("https://evil.example:8484", "127.0.0.1:8484"),
            ("null", "127.0.0.1:8484"),
        ] {
            assert!(is_cross_origin(origin, host), "{origin} calls {host}");
        }
        assert!(!hosts.is_cross_origin(&HeaderMap::new()));
    }
}
