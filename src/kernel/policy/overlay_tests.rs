//! Tests of layers, refusals and blocked names.

use super::*;
use crate::kernel::secret::Reference;

fn base() -> BTreeSet<String> {
    ["PATH", "HOME", "LANG"].map(str::to_owned).into()
}

fn agent(env: &[(&str, Option<&str>)], of_project: bool) -> AgentEnv {
    let env = env.iter();
    AgentEnv {
        env: env
            .map(|(name, value)| ((*name).to_owned(), value.map(GivenValue::text)))
            .collect(),
        secret: BTreeSet::new(),
        of_project,
    }
}

fn skill(name: &str, rank: usize, env: &[(&str, &str)], declared: &[&str]) -> SkillEnv {
    SkillEnv {
        name: name.to_owned(),
        rank,
        of_project: rank >= 4,
        declared: declared.iter().map(|name| (*name).to_owned()).collect(),
        key: None,
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), GivenValue::text(*value)))
            .collect(),
    }
}

fn request(env: &[(&str, &str)]) -> BTreeMap<String, GivenValue> {
    let env = env.iter();
    env.map(|(name, value)| ((*name).to_owned(), GivenValue::text(*value)))
        .collect()
}

/// Name, value and source of every entry.
fn shown(overlay: &Overlay) -> Vec<(&str, &str, &str)> {
    let values = overlay.values.iter();
    values
        .map(|(name, laid)| {
            let value = match &laid.given {
                GivenValue::Text(text) => text.expose(),
                GivenValue::From(_) => "reference",
            };
            (name.as_str(), value, laid.from.as_str())
        })
        .collect()
}

#[test]
fn g7_6_each_layer_wins_over_the_one_below_and_says_who_has_set_what() {
    let agent = agent(
        &[
            ("A", Some("agent")),
            ("B", Some("agent")),
            ("C", Some("agent")),
        ],
        false,
    );
    let skills = [skill("s", 3, &[("B", "skill"), ("C", "skill")], &[])];
    let overlay = build_overlay(&base(), &agent, &skills);
    let overlay = overlay
        .with_request(request(&[("C", "request")]), Giver::Other)
        .unwrap();
    assert_eq!(
        shown(&overlay),
        [
            ("A", "agent", "agent"),
            ("B", "skill", "skill:s"),
            ("C", "request", "request"),
        ]
    );
    assert_eq!(overlay.warnings, [""; 0]);
}

#[test]
fn of_two_skills_the_higher_source_wins_and_a_warning_names_both() {
    let low = skill("low", 1, &[("UNITS", "one"), ("SAME", "x")], &[]);
    let high = skill("high", 3, &[("UNITS", "two"), ("SAME", "x")], &[]);
    for skills in [[low.clone(), high.clone()], [high, low]] {
        let overlay = build_overlay(&base(), &AgentEnv::default(), &skills);
        assert_eq!(overlay.values["UNITS"].from, "skill:high");
        assert_eq!(overlay.warnings.len(), 1, "{:?}", overlay.warnings);
        let told = &overlay.warnings[0];
        assert!(
            told.contains("low and high") && told.contains("UNITS"),
            "{told}"
        );
        assert!(!told.contains("two"), "{told}");
    }
}

#[test]
fn g7_6_a_project_adds_and_never_replaces() {
    let project = agent(&[("LANG", Some("x")), ("NEW", Some("x"))], true);
    let skills = [skill("s", 4, &[("NEW", "y"), ("OTHER", "y")], &[])];
    let overlay = build_overlay(&base(), &project, &skills);
    assert_eq!(
        shown(&overlay),
        [("NEW", "x", "agent"), ("OTHER", "y", "skill:s")]
    );
    assert_eq!(overlay.warnings.len(), 2, "{:?}", overlay.warnings);
    // An agent file outside a project may do this.
    let own = agent(&[("LANG", Some("x")), ("PATH", Some("/opt"))], false);
    assert_eq!(build_overlay(&base(), &own, &[]).values.len(), 2);
}

#[test]
fn g7_4_what_changes_how_programs_start_comes_from_no_skill_project_or_request() {
    let names = [
        "PATH",
        "LD_PRELOAD",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
        "PYTHONPATH",
        "PYTHONHOME",
        "BASH_ENV",
        "ENV",
        "GIT_SSH_COMMAND",
        "PERL5LIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "GCONV_PATH",
        "SSLKEYLOGFILE",
        "IFS",
        "PS4",
        "SHELLOPTS",
        "ABIDE_RUN_ID",
        "ld_preload",
    ];
    for name in names {
        assert!(is_blocked(name), "{name}");
        let refused = Overlay::default().with_request(request(&[(name, "canary")]), Giver::Other);
        let fault = refused.unwrap_err();
        assert_eq!(fault.kind, Kind::Forbidden, "{name}");
        assert_eq!(fault.data["name"], name);
        assert!(!fault.to_string().contains("canary"), "{fault}");
        let skills = [skill("s", 3, &[(name, "x")], &[name])];
        let overlay = build_overlay(&base(), &agent(&[(name, Some("x"))], true), &skills);
        assert!(overlay.values.is_empty(), "{name}");
        assert_eq!(overlay.warnings.len(), 2, "{name}");
    }
    for name in ["LDAP_BASE", "WEATHER_UNITS", "GITHUB_REPOSITORY", "MY_PATH"] {
        assert!(!is_blocked(name), "{name}");
    }
}

#[test]
fn a_person_lets_a_request_give_what_is_blocked_otherwise() {
    for name in ["PGHOST", "DATABASE_URL", "PATH", "WEATHER_HOST"] {
        let given = || request(&[(name, "value-1")]);
        assert!(
            Overlay::default()
                .with_request(given(), Giver::Other)
                .is_err(),
            "{name}"
        );
        let own = build_overlay(&base(), &agent(&[(name, None)], false), &[]);
        assert!(own.with_request(given(), Giver::Other).is_ok(), "{name}");
        // Neither a value nor a project's file opens the name to requests.
        let set = build_overlay(&base(), &agent(&[(name, Some("x"))], false), &[]);
        assert!(set.with_request(given(), Giver::Other).is_err(), "{name}");
        let project = build_overlay(&base(), &agent(&[(name, None)], true), &[]);
        assert!(
            project.with_request(given(), Giver::Other).is_err(),
            "{name}"
        );
    }
    // A skill may set a name that is blocked by its form only if it declares it, and a tool's name
    // never.
    let has = |rank: usize, name: &str, declared: &[&str]| {
        let skills = [skill("s", rank, &[(name, "x")], declared)];
        !build_overlay(&base(), &AgentEnv::default(), &skills)
            .values
            .is_empty()
    };
    assert!(has(3, "WEATHER_HOST", &["WEATHER_HOST"]));
    assert!(!has(3, "WEATHER_HOST", &[]));
    assert!(!has(4, "WEATHER_HOST", &["WEATHER_HOST"]));
    assert!(!has(3, "PGHOST", &["PGHOST"]));
}

#[test]
fn what_looks_like_a_secret_must_have_been_declared() {
    for name in [
        "GH_TOKEN",
        "A_SECRET",
        "DB_PASSWORD",
        "OPENAI_API_KEY",
        "APIKEY",
        "TOKEN",
    ] {
        assert!(looks_secret(name), "{name}");
        let given = || request(&[(name, "value-1")]);
        let fault = Overlay::default()
            .with_request(given(), Giver::Other)
            .unwrap_err();
        assert_eq!(
            (fault.kind, &fault.data["name"]),
            (Kind::Forbidden, &name.into())
        );
        let own = Overlay::default().with_request(given(), Giver::Operator);
        assert!(own.unwrap().values[name].secret, "{name}");
        let declared = build_overlay(&base(), &agent(&[(name, None)], false), &[]);
        assert!(declared.values.is_empty());
        assert!(declared.with_request(given(), Giver::Other).is_ok());
        let declared = build_overlay(
            &base(),
            &AgentEnv::default(),
            &[skill("s", 3, &[], &[name])],
        );
        assert!(declared.with_request(given(), Giver::Other).is_ok());
        let skills = [skill("s", 3, &[(name, "x")], &[])];
        let overlay = build_overlay(&base(), &AgentEnv::default(), &skills);
        assert!(overlay.values.is_empty() && overlay.warnings.len() == 1);
    }
    for name in ["MONKEY", "TOKENIZER", "KEYBOARD", "WEATHER_UNITS"] {
        assert!(!looks_secret(name), "{name}");
    }
}

#[test]
fn what_no_environment_can_hold_is_refused_without_its_value() {
    let long = "x".repeat(MOST_BYTES + 1);
    for (name, value) in [
        ("A=B", "canary"),
        ("", "canary"),
        ("1A", "canary"),
        ("A", "can\0ary"),
        ("A", &long),
    ] {
        let fault = Overlay::default()
            .with_request(request(&[(name, value)]), Giver::Other)
            .unwrap_err();
        assert_eq!(fault.kind, Kind::InvalidParams, "{name}");
        assert!(!fault.to_string().contains("canary"), "{fault}");
    }
    let many: BTreeMap<String, GivenValue> = (0..=MOST_NAMES)
        .map(|n| {
            (
                format!("N{n}"),
                GivenValue::From(Reference::Variable("A".to_owned())),
            )
        })
        .collect();
    assert!(Overlay::default().with_request(many, Giver::Other).is_err());
}

#[test]
fn a_value_is_a_secret_by_name_by_declaration_or_as_the_text_of_a_request() {
    let from = |name: &str| GivenValue::From(Reference::Variable(name.to_owned()));
    let agent = AgentEnv {
        env: [
            ("HOST", from("HOST")),
            ("DIR", GivenValue::text("/srv/project")),
            ("A_TOKEN", from("A")),
            ("RENAMED", from("GH_TOKEN")),
            ("DSN", from("DATABASE")),
            ("WEATHER", GivenValue::text("value-1")),
        ]
        .map(|(name, given)| (name.to_owned(), Some(given)))
        .into(),
        secret: BTreeSet::from(["DSN".to_owned()]),
        of_project: false,
    };
    let keyed = SkillEnv {
        key: Some("WEATHER".to_owned()),
        ..skill("s", 3, &[("UNITS", "metric-units")], &[])
    };
    let overlay = build_overlay(&base(), &agent, &[keyed]);
    let mut given = request(&[("PLAIN", "given-here")]);
    given.insert("FOLDER".to_owned(), from("PWD"));
    given.insert(
        "CRED".to_owned(),
        GivenValue::From(Reference::Credential("x".to_owned())),
    );
    let overlay = overlay.with_request(given, Giver::Other).unwrap();
    let secret = |wanted: bool| -> Vec<&str> {
        let values = overlay.values.iter();
        let found = values.filter(|(_, laid)| laid.secret == wanted);
        found.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(
        secret(true),
        ["A_TOKEN", "CRED", "DSN", "PLAIN", "RENAMED", "WEATHER"]
    );
    assert_eq!(secret(false), ["DIR", "FOLDER", "HOST", "UNITS"]);
}
