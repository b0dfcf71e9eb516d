//! Authentication: the token, accepted host names and origins, and the rate limit on failures.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use tokio::sync::watch;

use super::forwarded::client_address;
use crate::clock::Clock;
use crate::gateway::Names;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{AccessTokens, LiveToken};

/// Failed attempts per source and window that are answered with `unauthorized`; further ones are
/// rate-limited.
const MAX_FAILURES: u32 = 20;
/// Length of the rate-limit window.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of sources counted separately; further ones share one counter.
const MAX_SOURCES: usize = 1024;

/// Checks a request before any of its body is read.
pub(crate) struct Guard {
    token: blake3::Hash,
    issued: Arc<AccessTokens>,
    names: watch::Receiver<Names>,
    failures: Mutex<HashMap<IpAddr, FailureWindow>>,
    clock: Clock,
}

struct FailureWindow {
    began: Duration,
    count: u32,
}

/// The token of a request.
enum ShownToken {
    Nothing,
    Wrong,
    /// The one of the state folder.
    Owner,
    Issued(Arc<LiveToken>),
}

/// Whose token a request carries.
pub(crate) enum TokenHolder {
    /// The owner of the daemon.
    Owner,
    /// The holder of this access token, which is valid.
    Issued(Arc<LiveToken>),
}

const WRONG: &str = "the token is wrong";

/// The endpoints of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpEndpoints {
    /// Address of the peer.
    pub(crate) peer: IpAddr,
    /// Local address that was called; it counts as one of the daemon's own names.
    pub(crate) local: IpAddr,
    /// Local port that was called.
    pub(crate) port: u16,
}

impl Guard {
    /// `token` is the owner's, of which only a digest is kept; `issued` are the tokens of users.
    pub(crate) fn new(
        token: &str,
        issued: Arc<AccessTokens>,
        names: watch::Receiver<Names>,
        clock: Clock,
    ) -> Self {
        Guard {
            token: blake3::hash(token.as_bytes()),
            issued,
            names,
            failures: Mutex::default(),
            clock,
        }
    }

    /// Refuses requests that a foreign web page could have sent (DNS rebinding): its host name may
    /// resolve to this address, but is not one of the daemon's own.
    pub(crate) fn check_names(&self, headers: &HeaderMap, ends: TcpEndpoints) -> Result<(), Fault> {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        let named = host.and_then(|host| host.parse::<Uri>().ok());
        let own = named.is_some_and(|uri| uri.host().is_some_and(|h| self.is_own(h, ends)));
        if !own {
            return Err(Fault::new(
                Kind::Forbidden,
                "the Host header is not one of this daemon's names",
            )
            .hint("use localhost or the address it listens on, or add the name to allowed_hosts"));
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(());
        };
        let page = origin.to_str();
        if self.is_configured(origin) || page.is_ok_and(|page| self.is_page(page, ends)) {
            return Ok(());
        }
        Err(
            Fault::new(Kind::Forbidden, "requests from this Origin are not allowed")
                .hint("add it to allowed_origins"),
        )
    }

    fn is_own(&self, host: &str, ends: TcpEndpoints) -> bool {
        self.knows(host) || address(host) == Some(ends.local)
    }

    /// Whether the host is loopback or a configured name.
    pub(crate) fn knows(&self, host: &str) -> bool {
        address(host).is_some_and(|address| address.is_loopback())
            || host.eq_ignore_ascii_case("localhost")
            || {
                let names = self.names.borrow();
                names.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
            }
    }

    /// Whether the origin is configured.
    pub(crate) fn is_configured(&self, origin: &HeaderValue) -> bool {
        let names = self.names.borrow();
        names.origins.iter().any(|allowed| allowed == origin)
    }

    /// Whether the daemon itself could have served the page. Another port of the same machine
    /// belongs to another program.
    fn is_page(&self, origin: &str, ends: TcpEndpoints) -> bool {
        let Ok(uri) = origin.parse::<Uri>() else {
            return false;
        };
        uri.host().is_some_and(|host| self.is_own(host, ends)) && uri.port_u16() == Some(ends.port)
    }

    /// Refuses requests without a valid token. A valid one always passes: failed attempts of one
    /// program must not lock out others on the same machine.
    pub(crate) fn check_token(
        &self,
        headers: &HeaderMap,
        ends: TcpEndpoints,
    ) -> Result<TokenHolder, Fault> {
        let why = match self.shown(headers) {
            ShownToken::Owner => return Ok(TokenHolder::Owner),
            ShownToken::Issued(token) => match token.check() {
                Ok(()) => return Ok(TokenHolder::Issued(token)),
                Err(ended) => ended,
            },
            ShownToken::Nothing => Fault::new(Kind::Unauthorized, "a token is required"),
            ShownToken::Wrong => Fault::new(Kind::Unauthorized, WRONG),
        };
        Err(self.refuse(ends.peer, why))
    }

    /// Counts a failed attempt of an address and returns its refusal: `why`, or the limit if there
    /// were too many.
    pub(crate) fn refuse(&self, peer: IpAddr, why: Fault) -> Fault {
        let Some(wait) = self.count_failure(peer) else {
            return why;
        };
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Fault::new(
            Kind::RateLimited,
            "too many requests without the right token or secret came from this address",
        )
        .with("retryAfterMs", ms)
    }

    /// Whose token the request carries, if any; a wrong one is an error. For local peers, which
    /// need no token for most calls.
    pub(crate) fn holder(&self, headers: &HeaderMap) -> Result<Option<TokenHolder>, Fault> {
        match self.shown(headers) {
            ShownToken::Owner => Ok(Some(TokenHolder::Owner)),
            ShownToken::Issued(token) => {
                token.check()?;
                Ok(Some(TokenHolder::Issued(token)))
            }
            ShownToken::Nothing => Ok(None),
            ShownToken::Wrong => Err(Fault::new(Kind::Unauthorized, WRONG)),
        }
    }

    fn shown(&self, headers: &HeaderMap) -> ShownToken {
        let Some(token) = bearer(headers) else {
            return ShownToken::Nothing;
        };
        // Comparing hashes takes constant time, regardless of the tokens' lengths.
        if blake3::hash(token) == self.token {
            return ShownToken::Owner;
        }
        self.issued
            .find(token)
            .map_or(ShownToken::Wrong, ShownToken::Issued)
    }

    /// Refuses further attempts from an address with too many failed ones. Loopback is never
    /// refused: one program must not lock out the others of the machine.
    pub(crate) fn check_attempts(&self, peer: IpAddr) -> Result<(), Fault> {
        if peer.is_loopback() {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let failures = self.failures.lock();
        let failures = failures.unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(window) = failures.get(&source(peer)) else {
            return Ok(());
        };
        let left = (window.began + WINDOW).saturating_sub(now);
        if window.count <= MAX_FAILURES || left.is_zero() {
            return Ok(());
        }
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Err(Fault::new(
            Kind::RateLimited,
            "too many failed attempts came from this address",
        )
        .with("retryAfterMs", ms))
    }

    /// The endpoints with the address of the client in place of that of a trusted proxy.
    pub(crate) fn seen_through_proxies(
        &self,
        headers: &HeaderMap,
        ends: TcpEndpoints,
    ) -> TcpEndpoints {
        let trusted = &self.names.borrow().trusted_proxies;
        let peer = client_address(ends.peer, headers, trusted);
        TcpEndpoints { peer, ..ends }
    }

    /// Counts a failed attempt; `Some` is the time to wait if there were too many.
    pub(crate) fn count_failure(&self, peer: IpAddr) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut failures = match self.failures.lock() {
            Ok(failures) => failures,
            // The map is consistent after a panic: each change is one insertion or addition.
            Err(poisoned) => poisoned.into_inner(),
        };
        let mut place = source(peer);
        if failures.len() >= MAX_SOURCES && !failures.contains_key(&place) {
            failures.retain(|_, window| now.saturating_sub(window.began) < WINDOW);
            if failures.len() >= MAX_SOURCES {
                place = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let window = failures.entry(place).or_insert(FailureWindow {
            began: now,
            count: 0,
        });
        if now.saturating_sub(window.began) >= WINDOW {
            *window = FailureWindow {
                began: now,
                count: 0,
            };
        }
        window.count = window.count.saturating_add(1);
        if window.count == MAX_FAILURES + 1 {
            tracing::warn!(
                client = %peer,
                "too many requests without the right token or secret; they are refused for a while"
            );
        }
        let left = (window.began + WINDOW).saturating_sub(now);
        (window.count > MAX_FAILURES).then_some(left)
    }
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let text = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = text.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then_some(token.trim_ascii())
}

/// The IP address in the host part of a URL; `None` for a name.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// Source for the rate limit: an IPv4 address, or an IPv6 /64 network, since its owner has all its
/// addresses.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::time::Timestamp;

    fn guard(clock: Clock) -> Guard {
        let names = Names {
            hosts: vec!["abide.lan".to_owned()],
            origins: vec!["https://panel.lan".to_owned()],
            trusted_proxies: Vec::new(),
        };
        let issued = Arc::new(AccessTokens::new(clock.clone()));
        Guard::new("secret", issued, watch::channel(names).1, clock)
    }

    fn ends() -> TcpEndpoints {
        TcpEndpoints {
            peer: "10.0.0.9".parse().unwrap(),
            local: "10.0.0.1".parse().unwrap(),
            port: 7777,
        }
    }

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn g10_1_only_own_names_pass() {
        let guard = guard(Clock::system());
        for own in [
            "localhost:7777",
            "LOCALHOST",
            "127.0.0.1:7777",
            "127.0.0.2",
            "[::1]:7777",
            "10.0.0.1:7777",
            "abide.lan:80",
        ] {
            let headers = headers(&[(HOST, own)]);
            assert!(guard.check_names(&headers, ends()).is_ok(), "{own}");
        }
        for foreign in [
            "evil.example:7777",
            "localhost.evil.example",
            "10.0.0.2:7777",
            "",
            "a b",
            "evil.example@localhost",
        ] {
            let headers = headers(&[(HOST, foreign)]);
            // User information before the host is not part of the host.
            let passes = guard.check_names(&headers, ends()).is_ok();
            assert_eq!(passes, foreign.ends_with("@localhost"), "{foreign}");
        }
        assert!(guard.check_names(&HeaderMap::new(), ends()).is_err());
    }

    #[test]
    fn g10_1_origins_are_the_daemons_own_or_configured() {
        let guard = guard(Clock::system());
        let passes = |origin: &str| {
            let headers = headers(&[(HOST, "localhost:7777"), (ORIGIN, origin)]);
            guard.check_names(&headers, ends()).is_ok()
        };
        assert!(passes("http://localhost:7777"));
        assert!(passes("https://panel.lan"));
        for foreign in [
            "http://localhost:3000",
            "http://localhost",
            "https://evil.example",
            "http://evil.example:7777",
            "https://panel.lan.evil.example",
            "null",
            "",
        ] {
            assert!(!passes(foreign), "{foreign}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        let guard = guard(Clock::system());
        let passes = |value: &str| {
            let headers = headers(&[(AUTHORIZATION, value)]);
            guard.check_token(&headers, ends()).is_ok()
        };
        assert!(passes("Bearer secret"));
        assert!(passes("bearer  secret "));
        for wrong in [
            "Bearer secre",
            "Bearer secrets",
            "Bearer ",
            "secret",
            "Basic secret",
        ] {
            assert!(!passes(wrong), "{wrong}");
        }
    }

    #[test]
    fn failed_tries_are_limited_by_place_and_the_right_token_still_passes() {
        let clock = Clock::test(Timestamp(0));
        let guard = guard(clock.clone());
        let wrong = headers(&[(AUTHORIZATION, "Bearer x")]);
        let kind = |ends| guard.check_token(&wrong, ends).err().unwrap().kind;
        for _ in 0..MAX_FAILURES {
            assert_eq!(kind(ends()), Kind::Unauthorized);
        }
        assert_eq!(kind(ends()), Kind::RateLimited);
        let other = TcpEndpoints {
            peer: "10.0.0.8".parse().unwrap(),
            ..ends()
        };
        assert_eq!(kind(other), Kind::Unauthorized);
        let right = headers(&[(AUTHORIZATION, "Bearer secret")]);
        assert!(guard.check_token(&right, ends()).is_ok());
        clock.advance(WINDOW);
        assert_eq!(kind(ends()), Kind::Unauthorized);
    }

    #[test]
    fn guesses_lock_out_their_address_and_never_loopback() {
        let clock = Clock::test(Timestamp(0));
        let guard = guard(clock.clone());
        let [far, other, here] =
            ["10.0.0.8", "10.0.0.9", "127.0.0.1"].map(|ip| ip.parse().unwrap());
        for _ in 0..=MAX_FAILURES {
            for peer in [far, here] {
                assert!(guard.check_attempts(peer).is_ok(), "{peer}");
                guard.count_failure(peer);
            }
        }
        assert_eq!(
            guard.check_attempts(far).unwrap_err().kind,
            Kind::RateLimited
        );
        assert!(guard.check_attempts(other).is_ok());
        assert!(guard.check_attempts(here).is_ok());
        clock.advance(WINDOW);
        assert!(guard.check_attempts(far).is_ok());
    }

    #[test]
    fn counting_failures_takes_bounded_memory() {
        let guard = guard(Clock::test(Timestamp(0)));
        for address in 0..u32::try_from(MAX_SOURCES).unwrap() * 3 {
            guard.count_failure(IpAddr::V4(address.into()));
        }
        assert!(guard.failures.lock().unwrap().len() <= MAX_SOURCES + 1);
    }
}
