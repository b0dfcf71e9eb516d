//! Who is at the other end of a connection, and on whose behalf it speaks: the one place where
//! a peer becomes a principal. The HTTP routes ask before anything of a request is read.
//!
//! Over TCP anybody can connect, so the token decides, and the names keep out web pages. Over
//! the Unix socket the system says who connected, and no browser can open it.

use std::sync::Arc;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};

use super::auth::{Ends, Guard};
use crate::contract::processes::StartedFor;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::Principal;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A program that reached the TCP port.
    Tcp(Ends),
    /// A program of this machine that opened the Unix socket.
    Local(Credentials),
}

/// What the system says about who opened the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    /// Its user.
    pub(crate) uid: u32,
    /// Its process; not every system tells, and one of another container has none here.
    pub(crate) pid: Option<i32>,
}

/// Lets peers in, each as the principal that it is.
pub(crate) struct Gate {
    guard: Guard,
    owner: Arc<Principal>,
    uid: u32,
    started_for: Origins,
}

/// For whom a process, or one above it, was started.
pub type Origins = Arc<dyn Fn(u32) -> Option<StartedFor> + Send + Sync>;

impl Gate {
    /// Whoever holds the guard's token, or is this process's own user, speaks for `owner`.
    pub(crate) fn new(guard: Guard, owner: Principal) -> Self {
        Gate {
            guard,
            owner: Arc::new(owner),
            uid: rustix::process::geteuid().as_raw(),
            started_for: Arc::new(|_| None),
        }
    }

    /// Peers that `started_for` knows speak for their run, and not for the owner; a server of
    /// tools, which does what models ask of it, for nobody.
    pub(crate) fn knowing(self, started_for: Origins) -> Self {
        Gate {
            started_for,
            ..self
        }
    }

    /// On whose behalf this request is made, or why it is refused.
    pub(crate) fn admit(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Principal>, Fault> {
        match peer {
            Peer::Tcp(ends) => {
                self.guard.check_names(headers, *ends)?;
                self.guard.check_token(headers, *ends)?;
            }
            Peer::Local(credentials) => {
                self.check_user(*credentials)?;
                self.check_not_forwarded(headers)?;
                let pid = credentials.pid.and_then(|pid| u32::try_from(pid).ok());
                match pid.and_then(|pid| (self.started_for)(pid)) {
                    None => {}
                    Some(StartedFor::Run(run)) => {
                        return Ok(Arc::new(Principal {
                            run: Some(run),
                            ..Principal::clone(&self.owner)
                        }));
                    }
                    Some(StartedFor::Service) => {
                        return Err(Fault::new(
                            Kind::Forbidden,
                            "a tool server, and what it starts, has no say here; nothing was done",
                        )
                        .hint("let it use the TCP address with a token, if it is meant to"));
                    }
                }
            }
        }
        Ok(Arc::clone(&self.owner))
    }

    /// The daemon's own user has every right, and so has root, from whom nothing on this
    /// machine could be kept anyway: it reads the token and the store itself.
    fn check_user(&self, peer: Credentials) -> Result<(), Fault> {
        if peer.uid == self.uid || peer.uid == 0 {
            return Ok(());
        }
        tracing::warn!(uid = peer.uid, pid = peer.pid, "another user was refused");
        Err(Fault::new(
            Kind::Forbidden,
            format!(
                "this socket serves user {} and root, and you are user {}; nothing was done",
                self.uid, peer.uid
            ),
        )
        .hint("run as that user, or use the TCP address with a token"))
    }

    /// No browser opens a Unix socket. A program that forwards a port to it does, and then web
    /// pages could come that way, with the rights of whoever forwards.
    fn check_not_forwarded(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if let Some(origin) = headers.get(ORIGIN)
            && !self.guard.is_configured(origin)
        {
            return Err(Fault::new(
                Kind::Forbidden,
                "a web page may not talk to the daemon through a forwarded socket",
            )
            .hint("add its origin to allowed_origins, or let it use the TCP address"));
        }
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
            return Ok(());
        };
        // Names with a dot can be made to point anywhere by whoever owns them.
        let named = host.parse::<Uri>().ok();
        let name = named.as_ref().and_then(Uri::host);
        if host.is_empty() || name.is_some_and(|name| !name.contains('.') || self.guard.knows(name))
        {
            return Ok(());
        }
        Err(Fault::new(
            Kind::Forbidden,
            "the Host header names none of this daemon's own names",
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

    fn gate() -> Gate {
        let names = crate::gateway::Names {
            hosts: vec!["abide.lan".to_owned()],
            origins: vec!["https://panel.lan".to_owned()],
        };
        let names = tokio::sync::watch::channel(names).1;
        let guard = Guard::new("secret", names, Clock::system());
        let owner = Principal {
            org: "default".to_owned(),
            user: "admin".to_owned(),
            run: None,
        };
        let mut gate = Gate::new(guard, owner);
        gate.uid = 1000;
        gate
    }

    fn local(uid: u32, headers: &[(HeaderName, &str)]) -> Result<Arc<Principal>, Fault> {
        let headers = headers.iter();
        let headers: HeaderMap = headers
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        let pid = Some(1);
        gate().admit(&Peer::Local(Credentials { uid, pid }), &headers)
    }

    #[test]
    fn a_program_of_a_run_speaks_for_its_run() {
        let run = RunId(uuid::Uuid::from_u128(1));
        let gate = gate().knowing(Arc::new(move |pid| match pid {
            7 => Some(StartedFor::Run(run)),
            9 => Some(StartedFor::Service),
            _ => None,
        }));
        let admitted = |pid| {
            let credentials = Credentials { uid: 1000, pid };
            let peer = Peer::Local(credentials);
            gate.admit(&peer, &HeaderMap::new())
        };
        assert_eq!(admitted(Some(7)).unwrap().run, Some(run));
        assert_eq!(admitted(Some(8)).unwrap().run, None);
        assert_eq!(admitted(None).unwrap().run, None);
        let refused = admitted(Some(9)).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);
    }

    #[test]
    fn the_socket_is_for_the_daemons_own_user_and_for_root() {
        assert_eq!(local(1000, &[]).unwrap().user, "admin");
        assert!(local(0, &[]).is_ok());
        let refused = local(1001, &[]).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);
        assert!(refused.message.contains("1001"), "{refused}");
        // A token does not change whose socket it is.
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
