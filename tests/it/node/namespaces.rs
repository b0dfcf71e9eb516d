//! A gateway and two nodes, each with its own network, and cables between them that are slow, lose
//! packets and are cut. Linux only; where the system does not permit it, the test says so.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use abide::clock::Clock;
use serde_json::json;

use super::fixture::{ALLOW, Node, NodeProcess, ended, spawned};
use super::paired::{gateway, in_state};
use crate::harness::{Daemon, Link, run};

/// Set in the process of the test that has a network of its own.
const INSIDE: &str = "ABIDE_TEST_OWN_NETWORK";
const TEST: &str = "node::namespaces::a_cut_cable_is_noticed_and_nothing_runs_twice";
/// After this time at most a call whose node is cut off has ended: the link is lost for 20 s, and
/// what waits for it looks twice a second.
const NOTICED: Duration = Duration::from_secs(22);

/// Takes about 25 seconds: a link that carries nothing and is not closed is noticed by time alone.
#[test]
fn a_cut_cable_is_noticed_and_nothing_runs_twice() {
    match std::env::var_os(INSIDE) {
        Some(_) => run(cut_cables()),
        None => with_own_network(),
    }
}

/// Runs the test again in a network of its own, so that it changes nothing of this machine.
#[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
fn with_own_network() {
    let me = std::env::current_exe().unwrap();
    let missing = ["unshare", "nsenter", "ip"].into_iter().find(|tool| {
        let found = Command::new(tool).arg("-V").output();
        found.is_err()
    });
    if let Some(tool) = missing {
        println!("skipped: there is no {tool}");
        return;
    }
    let unshare = |more: &[&str]| {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.arg("--net").args(more);
        command
    };
    let link = [
        "ip", "link", "add", "one", "type", "veth", "peer", "name", "other",
    ];
    let permitted = unshare(&link).output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        println!("skipped: no network with a cable can be made");
        return;
    }
    let output = unshare(&[])
        .arg(me)
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("1 passed"),
        "{TEST} is not the test's name: {text}"
    );
}

fn sh(line: &str) -> bool {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    output.status.success()
}

fn must(line: &str) {
    assert!(sh(line), "{line}");
}

/// A second machine with a cable to the gateway.
struct Machine {
    node: Node,
    /// A process that keeps its network.
    network: Child,
    /// The gateway's end of the cable.
    cable: String,
    /// The gateway's address on the cable.
    gateway: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.network.kill();
        let _ = self.network.wait();
    }
}

impl Machine {
    fn new(number: u8, name: &'static str) -> Machine {
        let mut network = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 4000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has its network once it prints.
        let mut line = [0];
        std::io::Read::read_exact(network.stdout.as_mut().unwrap(), &mut line).unwrap();
        let (pid, cable) = (network.id(), format!("cable{number}"));
        let gateway = format!("198.18.{number}.1");
        let there = format!("nsenter -t {pid} -n ip");
        for line in [
            format!("ip link add {cable} type veth peer name eth0 netns {pid}"),
            format!("ip addr add {gateway}/30 dev {cable}"),
            format!("ip link set {cable} up"),
            format!("{there} addr add 198.18.{number}.2/30 dev eth0"),
            format!("{there} link set eth0 up"),
            format!("{there} link set lo up"),
        ] {
            must(&line);
        }
        Machine {
            node: Node::named(name),
            network,
            cable,
            gateway,
        }
    }

    /// Makes the cable slow and lossy in both directions; false if the system cannot do that.
    fn degrade(&self) -> bool {
        let netem = "root netem delay 20ms 10ms loss 3%";
        let there = format!("nsenter -t {} -n", self.network.id());
        sh(&format!("tc qdisc add dev {} {netem}", self.cable))
            && sh(&format!("{there} tc qdisc add dev eth0 {netem}"))
    }

    /// Cuts the cable: neither side is told.
    fn cut(&self) {
        must(&format!("ip link set {} down", self.cable));
    }

    fn mend(&self) {
        must(&format!("ip link set {} up", self.cable));
    }

    /// The command, in the network of this machine.
    fn command(&self, words: &[&str]) -> Command {
        let own = self.node.command(words);
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.network.id().to_string(), "-n", "--"])
            .arg(own.get_program())
            .args(own.get_args())
            .env_clear()
            .envs(
                own.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(own.get_current_dir().unwrap())
            .stdin(Stdio::null());
        command
    }

    /// Pairs the node over its cable, and starts it.
    async fn connect(&self, daemon: &Daemon, client: &Link) -> NodeProcess {
        let invited = json!({ "name": self.node.name });
        let invited = client.call("nodes.invite", invited).await;
        let (_, port) = daemon.url().rsplit_once(':').unwrap();
        let url = format!("ws://{}:{port}", self.gateway);
        let code = invited["code"].as_str().unwrap();
        let words = [
            "node",
            "pair",
            "--gateway",
            &url,
            "--insecure",
            "--code",
            code,
        ];
        let paired = ended(spawned(self.command(&words))).await;
        assert!(paired.status.success(), "{paired:?}");
        self.node.allows(ALLOW);
        let process = self.node.started(self.command(&["node", "run"]));
        in_state(client, self.node.name, "connected").await;
        process
    }

    fn let_go(&self) {
        std::fs::write(self.node.path().join("go"), "").unwrap();
    }
}

#[expect(clippy::print_stdout, reason = "a test that tests less must say so")]
async fn cut_cables() {
    must("ip link set lo up");
    let place = gateway()
        .with("gateway.listen", "\"0.0.0.0:0\"")
        .with("gateway.allow_plain", "true");
    let daemon = place.start().await;
    let client = daemon.client().await;
    let (mac, build) = (Machine::new(1, "mac"), Machine::new(2, "build"));
    if !(mac.degrade() && build.degrade()) {
        println!("without delay and loss: this system has no netem");
    }
    let _processes = [
        mac.connect(&daemon, &client).await,
        build.connect(&daemon, &client).await,
    ];
    // Programs that end once there is `go`.
    let waits = "until test -e go; do sleep 0.05; done; echo out";
    let calls = [&mac, &build].map(|machine| machine.node.traced(waits));
    let clock = Clock::system();
    let cut_at = std::cell::Cell::new(Duration::ZERO);
    let cutting = async {
        for machine in [&mac, &build] {
            crate::harness::eventually("the program", async || {
                (!machine.node.traces().is_empty()).then_some(())
            })
            .await;
        }
        cut_at.set(clock.monotonic());
        mac.cut();
        build.cut();
        in_state(&client, "build", "away").await;
        assert!(clock.monotonic() - cut_at.get() < Duration::from_secs(20));
        // The one is away for a moment only.
        build.mend();
        in_state(&client, "build", "connected").await;
        build.let_go();
    };
    let of_mac = async {
        let ended = client.call("nodes.call", calls[0].clone()).await;
        (ended, clock.monotonic())
    };
    let of_build = client.call("nodes.call", calls[1].clone());
    let ((lost, at), kept, ()) = tokio::join!(of_mac, of_build, cutting);
    assert_eq!(lost["end"]["type"], "uncertain", "{lost}");
    assert!(at - cut_at.get() < NOTICED, "{:?}", at - cut_at.get());
    assert_eq!(kept["end"]["value"]["stdout"], "out\n", "{kept}");

    // The other is back later, and still knows what it has done.
    mac.mend();
    mac.let_go();
    in_state(&client, "mac", "connected").await;
    let again = client.call("nodes.call", calls[0].clone()).await;
    assert_eq!(again["end"]["value"]["stdout"], "out\n", "{again}");
    for machine in [&mac, &build] {
        assert_eq!(machine.node.traces(), ["ran"]);
    }
    assert_eq!(daemon.stop().await, 0);
}
