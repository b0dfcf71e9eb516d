//! Identifies the peer of a connection and the principal of each request; no other place turns a
//! peer into a principal. The HTTP routes call it before they read a request's body.
//!
//! Any program can connect over TCP, so the token decides, and the host and origin checks keep out
//! web pages. Over the Unix socket the system reports the connecting process, and no browser can
//! open it. The process is identified at accept: later it may have ended or passed the stream on.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};
use tokio::net::unix::UCred;

use super::auth::{Guard, TcpEndpoints, TokenHolder};
use crate::contract::processes::ProcessOrigin;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::Principal;

/// Timeout of looking up the origin of a process.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A program that connected to the TCP port.
    Tcp(TcpEndpoints),
    /// A program on this machine that connected to the Unix socket.
    Local(LocalPeer),
}

/// The process that connected to the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalPeer {
    /// User id of the process.
    pub(crate) uid: u32,
    /// Which run or service started the process, if any.
    pub(crate) origin: ProcessOrigin,
}

/// Admits peers and determines their principals.
pub(crate) struct PeerGate {
    guard: Guard,
    owner: Arc<Principal>,
    uid: u32,
    origins: Origins,
}

/// Looks up the origin of the process with this id; `None` means it has no id in this namespace.
pub type Origins = Arc<dyn Fn(Option<u32>) -> ProcessOrigin + Send + Sync>;

impl PeerGate {
    /// Peers with the guard's token, or of this process's own user, act as `owner`.
    pub(crate) fn new(guard: Guard, owner: Principal) -> Self {
        PeerGate {
            guard,
            owner: Arc::new(owner),
            uid: rustix::process::geteuid().as_raw(),
            origins: Arc::new(|_| ProcessOrigin::Outside),
        }
    }

    /// Peers that a run started, according to `origins`, act as that run and not as the owner.
    pub(crate) fn with_origins(self, origins: Origins) -> Self {
        PeerGate { origins, ..self }
    }

    /// Identifies the process that has just connected to the Unix socket.
    pub(crate) async fn identify(&self, credentials: UCred) -> LocalPeer {
        let uid = credentials.uid();
        let mut local = LocalPeer {
            uid,
            origin: ProcessOrigin::Unproven,
        };
        if !self.knows_user(local) {
            return local;
        }
        // Zero: a process of another container, which has no id in this namespace.
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
        let pid = pid.filter(|pid| *pid > 0);
        let origins = Arc::clone(&self.origins);
        // Reading process information can block; a process for which it does is treated as
        // unproven.
        let looking = tokio::task::spawn_blocking(move || origins(pid));
        if let Ok(Ok(origin)) = tokio::time::timeout(ORIGIN_TIMEOUT, looking).await {
            local.origin = origin;
        }
        local
    }

    /// Whether the peer has the daemon's user id or is root, from which nothing on this machine
    /// could be protected anyway.
    pub(crate) fn knows_user(&self, peer: LocalPeer) -> bool {
        peer.uid == self.uid || peer.uid == 0
    }

    /// The principal of a request, or why it is refused.
    pub(crate) fn admit(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Principal>, Fault> {
        match peer {
            Peer::Tcp(ends) => {
                self.guard.check_names(headers, *ends)?;
                let holder = self.holder(self.guard.check_token(headers, *ends)?);
                Ok(Arc::new(Principal {
                    address: Some(ends.peer),
                    ..Arc::unwrap_or_clone(holder)
                }))
            }
            Peer::Local(local) => {
                self.check_user(*local)?;
                self.check_not_forwarded(headers)?;
                self.admit_local(local.origin, headers)
            }
        }
    }

    /// The peer by which a request is counted and logged: behind a trusted proxy, its client.
    pub(crate) fn client(&self, peer: Peer, headers: &HeaderMap) -> Peer {
        match peer {
            Peer::Tcp(ends) => Peer::Tcp(self.guard.seen_through_proxies(headers, ends)),
            local @ Peer::Local(_) => local,
        }
    }

    /// Refuses a request that a web page could have sent, and other users on the socket. For routes
    /// that need no token of a client.
    pub(crate) fn check_names(&self, peer: &Peer, headers: &HeaderMap) -> Result<(), Fault> {
        match peer {
            Peer::Tcp(ends) => self.guard.check_names(headers, *ends),
            Peer::Local(local) => {
                self.check_user(*local)?;
                self.check_not_forwarded(headers)
            }
        }
    }

    /// Refuses further attempts from an address with too many failed ones.
    pub(crate) fn check_attempts(&self, peer: &Peer) -> Result<(), Fault> {
        match peer {
            Peer::Tcp(ends) => self.guard.check_attempts(ends.peer),
            Peer::Local(_) => Ok(()),
        }
    }

    /// The answer to a connection without the token of a node, which counts as a failed attempt.
    pub(crate) fn refuse_token(&self, peer: &Peer) -> Fault {
        self.count_failure(peer);
        self.check_attempts(peer).err().unwrap_or_else(|| {
            Fault::new(Kind::Unauthorized, "this is not the token of a node")
                .hint("pair the machine again: abide node pair")
        })
    }

    /// Counts a failed attempt of a peer and returns its refusal: `why`, or the limit if there were
    /// too many.
    pub(crate) fn refuse(&self, peer: &Peer, why: Fault) -> Fault {
        match peer {
            Peer::Tcp(ends) => self.guard.refuse(ends.peer, why),
            Peer::Local(_) => why,
        }
    }

    /// Counts a failed attempt of a peer to prove itself.
    pub(crate) fn count_failure(&self, peer: &Peer) {
        if let Peer::Tcp(ends) = peer {
            self.guard.count_failure(ends.peer);
        }
    }

    fn admit_local(
        &self,
        origin: ProcessOrigin,
        headers: &HeaderMap,
    ) -> Result<Arc<Principal>, Fault> {
        let refused = |what: &str| {
            Err(
                Fault::new(Kind::Forbidden, format!("{what}; nothing was done")).hint(
                    "if this process should have access, let it use the TCP address with a token",
                ),
            )
        };
        match origin {
            // A program can read the token as its user can; over the socket the token gives it no
            // further rights.
            ProcessOrigin::Run(run) => Ok(Arc::new(Principal {
                run: Some(run),
                ..Principal::clone(&self.owner)
            })),
            ProcessOrigin::Service => {
                refused("a tool server and its child processes may not call the daemon")
            }
            ProcessOrigin::Stray => refused(
                "this process was started by a program of a run or of a tool server that is gone: \
                 it is not the owner, and its run cannot be determined",
            ),
            ProcessOrigin::Outside => Ok(match self.guard.holder(headers)? {
                Some(holder) => self.holder(holder),
                None => self.owner(false),
            }),
            ProcessOrigin::Unproven => match self.guard.holder(headers)? {
                Some(holder) => Ok(self.holder(holder)),
                None => Err(Fault::new(
                    Kind::Forbidden,
                    "it cannot be proved that this process was not started by a run, because it \
                     has ended, runs in another container or cannot be inspected; nothing was \
                     done",
                )
                .hint("send Authorization: Bearer with the token from the state folder")),
            },
        }
    }

    fn holder(&self, holder: TokenHolder) -> Arc<Principal> {
        match holder {
            TokenHolder::Owner => self.owner(true),
            TokenHolder::Issued(token) => Arc::new(Principal::of_token(token)),
        }
    }

    fn owner(&self, with_token: bool) -> Arc<Principal> {
        match with_token == self.owner.with_token {
            true => Arc::clone(&self.owner),
            false => Arc::new(Principal {
                with_token,
                ..Principal::clone(&self.owner)
            }),
        }
    }

    fn check_user(&self, peer: LocalPeer) -> Result<(), Fault> {
        if self.knows_user(peer) {
            return Ok(());
        }
        tracing::debug!(uid = peer.uid, "a connection of another user was refused");
        Err(Fault::new(
            Kind::Forbidden,
            format!(
                "this socket serves user {} and root, and you are user {}; nothing was done",
                self.uid, peer.uid
            ),
        )
        .hint("run as that user, or use the TCP address with a token"))
    }

    /// No browser opens a Unix socket, but a program that forwards a port to it does. Web pages
    /// could then use the rights of the forwarding user.
    fn check_not_forwarded(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if let Some(origin) = headers.get(ORIGIN)
            && !self.guard.is_configured(origin)
        {
            return Err(Fault::new(
                Kind::Forbidden,
                "a web page may not call the daemon through a forwarded socket",
            )
            .hint("add its origin to allowed_origins, or let it use the TCP address"));
        }
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
            return Ok(());
        };
        // The owner of a domain can make its names resolve to any address.
        let named = host.parse::<Uri>().ok();
        let name = named.as_ref().and_then(Uri::host);
        if host.is_empty() || name.is_some_and(|name| !name.contains('.') || self.guard.knows(name))
        {
            return Ok(());
        }
        Err(Fault::new(
            Kind::Forbidden,
            "the Host header is not one of this daemon's names",
        )
        .hint("use http://localhost/ over the socket, or add the name to allowed_hosts"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::kernel::ids::RunId;
    use http::{HeaderName, HeaderValue};

    fn gate() -> PeerGate {
        let names = crate::gateway::Names {
            hosts: vec!["abide.lan".to_owned()],
            origins: vec!["https://panel.lan".to_owned()],
            trusted_proxies: Vec::new(),
        };
        let names = tokio::sync::watch::channel(names).1;
        let issued = Arc::new(crate::registry::AccessTokens::new(Clock::system()));
        let guard = Guard::new("secret", issued, names, Clock::system());
        let mut gate = PeerGate::new(guard, Principal::owner());
        gate.uid = 1000;
        gate
    }

    fn admitted(
        uid: u32,
        origin: ProcessOrigin,
        headers: &[(HeaderName, &str)],
    ) -> Result<Arc<Principal>, Fault> {
        let headers = headers.iter();
        let headers: HeaderMap = headers
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        gate().admit(&Peer::Local(LocalPeer { uid, origin }), &headers)
    }

    fn local(uid: u32, headers: &[(HeaderName, &str)]) -> Result<Arc<Principal>, Fault> {
        admitted(uid, ProcessOrigin::Outside, headers)
    }

    #[test]
    fn who_speaks_over_the_socket_is_decided_by_its_origin_and_the_token() {
        let run = RunId(uuid::Uuid::from_u128(1));
        let right = [(http::header::AUTHORIZATION, "Bearer secret")];
        let wrong = [(http::header::AUTHORIZATION, "Bearer other")];
        // Without a token, with the right token, with a wrong token.
        let all = |origin| {
            [&[][..], &right, &wrong].map(|headers| match admitted(1000, origin, headers) {
                Ok(who) => Ok((who.run, who.with_token)),
                Err(fault) => Err(fault.kind),
            })
        };
        let owner = |with_token| Ok((None, with_token));
        assert_eq!(
            all(ProcessOrigin::Outside),
            [owner(false), owner(true), Err(Kind::Unauthorized)]
        );
        assert_eq!(
            all(ProcessOrigin::Unproven),
            [Err(Kind::Forbidden), owner(true), Err(Kind::Unauthorized)]
        );
        assert_eq!(all(ProcessOrigin::Run(run)), [Ok((Some(run), false)); 3]);
        assert_eq!(all(ProcessOrigin::Service), [Err(Kind::Forbidden); 3]);
        assert_eq!(all(ProcessOrigin::Stray), [Err(Kind::Forbidden); 3]);
    }

    #[test]
    fn the_socket_is_for_the_daemons_own_user_and_for_root() {
        assert_eq!(local(1000, &[]).unwrap().user, "admin");
        assert!(local(0, &[]).is_ok());
        let refused = local(1001, &[]).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);
        assert!(refused.message.contains("1001"), "{refused}");
        // A token gives another user no access to the socket.
        let token = [(http::header::AUTHORIZATION, "Bearer secret")];
        assert!(local(1001, &token).is_err());
    }

    #[test]
    fn g10_1_a_web_page_does_not_come_in_through_a_forwarded_socket() {
        for name in [
            "localhost",
            "localhost:80",
            "127.0.0.1",
            "d",
            "abide.lan",
            "",
        ] {
            assert!(local(1000, &[(HOST, name)]).is_ok(), "{name}");
        }
        for name in ["evil.example", "evil.example:80", "localhost.evil.example"] {
            assert!(local(1000, &[(HOST, name)]).is_err(), "{name}");
        }
        assert!(local(1000, &[(ORIGIN, "https://panel.lan")]).is_ok());
        for origin in ["http://localhost", "https://evil.example", "null"] {
            assert!(local(1000, &[(ORIGIN, origin)]).is_err(), "{origin}");
        }
    }
}
