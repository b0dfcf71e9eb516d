//! Tests of assembling tool calls, in the shapes in which servers are known to send them.

use super::*;

const ONE: &str = r#"{"path": "1"}"#;
const TWO: &str = r#"{"path": "2"}"#;

fn piece<'a>(
    index: impl Into<Option<u64>>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
) -> CallPiece<'a> {
    CallPiece {
        index: index.into(),
        id,
        name,
        arguments,
        begins: false,
    }
}

fn finished(pieces: &[CallPiece<'_>]) -> Result<Vec<AssembledCall>, AttemptFailure> {
    finished_with(AnswerContext::default(), pieces)
}

/// Each piece in an event of its own.
fn finished_with(
    mut known: AnswerContext,
    pieces: &[CallPiece<'_>],
) -> Result<Vec<AssembledCall>, AttemptFailure> {
    let mut calls = Calls::default();
    for piece in pieces {
        calls.begin_list(FinishPhase::Before);
        calls.take(*piece);
    }
    let finished = calls.finish(&mut known, false);
    finished.map(|calls| calls.into_iter().flatten().collect())
}

/// The calls that would be executed: id, name and arguments.
fn run(pieces: &[CallPiece<'_>]) -> Vec<(String, String, Value)> {
    let calls = finished(pieces).unwrap().into_iter();
    let run = calls.filter(|call| call.refused.is_none());
    run.map(|call| (call.id, call.name, call.arguments))
        .collect()
}

/// Why the only call is refused.
fn refused(pieces: &[CallPiece<'_>]) -> String {
    let calls = finished(pieces).unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls[0].refused.clone().expect("it is refused")
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, Value) {
    let arguments = serde_json::from_str(arguments).unwrap();
    (id.to_owned(), name.to_owned(), arguments)
}

#[test]
fn one_id_is_one_call_however_often_it_comes() {
    let once = [call("a", "read", ONE)];
    let (begin, end) = ONE.split_at(6);
    for again in [
        // Whole, at its index, at another one, and without one.
        vec![piece(0, "a", "read", ONE), piece(0, "a", "read", ONE)],
        vec![piece(0, "a", "read", ONE), piece(1, "a", "read", ONE)],
        vec![piece(0, "a", "read", ONE), piece(None, "a", "read", ONE)],
        vec![piece(0, "a", "read", ONE), piece(7, "a", "", "")],
        // In pieces, after the first version and interleaved with it.
        vec![
            piece(0, "a", "read", begin),
            piece(0, "", "", end),
            piece(1, "a", "read", begin),
            piece(1, "", "", end),
        ],
        vec![
            piece(0, "a", "read", ""),
            piece(1, "a", "read", ""),
            piece(0, "", "", begin),
            piece(1, "", "", begin),
            piece(0, "", "", end),
            piece(1, "", "", end),
        ],
        // Id and name in every piece, or another index in every piece.
        vec![piece(0, "a", "read", begin), piece(0, "a", "read", end)],
        vec![piece(0, "a", "read", begin), piece(1, "a", "", end)],
        // Without an id the second time.
        vec![piece(0, "a", "read", ONE), piece(None, "", "read", ONE)],
        vec![piece(0, "a", "read", ONE), piece(0, "", "read", "")],
    ] {
        assert_eq!(run(&again), once, "{again:?}");
    }
}

#[test]
fn versions_of_a_call_that_differ_are_refused() {
    for differ in [
        [piece(0, "a", "read", ONE), piece(0, "a", "read", TWO)],
        [piece(0, "a", "read", ONE), piece(1, "a", "read", TWO)],
        [piece(0, "a", "read", ONE), piece(None, "a", "", TWO)],
    ] {
        let why = refused(&differ);
        assert!(why.contains("not with the same arguments"), "{why}");
    }
    let why = refused(&[piece(0, "a", "read", ONE), piece(1, "a", "write", ONE)]);
    assert!(why.contains("for read and for write"), "{why}");
}

#[test]
fn calls_that_share_an_index_are_told_apart() {
    let (begin, end) = ONE.split_at(6);
    let (begin_two, end_two) = TWO.split_at(6);
    for (apart, ids) in [
        (
            vec![piece(0, "a", "read", ONE), piece(0, "b", "write", TWO)],
            ["a", "b"],
        ),
        (
            vec![
                piece(0, "a", "read", begin),
                piece(0, "", "", end),
                piece(0, "b", "write", ""),
                piece(0, "", "", TWO),
            ],
            ["a", "b"],
        ),
        // By their ids, piece by piece.
        (
            vec![
                piece(0, "a", "read", begin),
                piece(0, "b", "write", TWO),
                piece(0, "a", "", end),
            ],
            ["a", "b"],
        ),
        // With an index only in the first piece.
        (
            vec![
                piece(0, "a", "read", ""),
                piece(None, "", "", ONE),
                piece(1, "b", "write", begin_two),
                piece(None, "", "", end_two),
            ],
            ["a", "b"],
        ),
        // By their names alone.
        (
            vec![piece(0, "", "read", ONE), piece(0, "", "write", TWO)],
            ["call_0_0", "call_0_1"],
        ),
        (
            vec![piece(None, "", "read", ONE), piece(None, "", "write", TWO)],
            ["call_0_0", "call_0_1"],
        ),
    ] {
        let expected = [call(ids[0], "read", ONE), call(ids[1], "write", TWO)];
        assert_eq!(run(&apart), expected, "{apart:?}");
    }
    // One tool with two different arguments is called twice, with equal ones once.
    let twice = [piece(0, "", "read", ONE), piece(0, "", "read", TWO)];
    assert_eq!(run(&twice).len(), 2);
    let once = [piece(0, "", "read", ONE), piece(1, "", "read", ONE)];
    assert_eq!(run(&once).len(), 1);
    let parallel = [piece(0, "a", "read", ONE), piece(1, "b", "read", ONE)];
    assert_eq!(run(&parallel).len(), 2);
}

#[test]
fn arguments_that_may_belong_to_several_calls_run_none() {
    let (begin, end) = ONE.split_at(6);
    for unclear in [
        // Both begun, then arguments at the index of both.
        vec![
            piece(0, "a", "read", ""),
            piece(0, "b", "write", ""),
            piece(0, "", "", ONE),
        ],
        vec![
            piece(0, "a", "read", begin),
            piece(0, "b", "write", ""),
            piece(0, "", "", end),
        ],
        // At an index where nothing was begun.
        vec![piece(0, "a", "read", ""), piece(3, "", "", ONE)],
        vec![piece(0, "a", "read", ONE), piece(3, "", "", TWO)],
        // Before the call.
        vec![piece(0, "", "", begin), piece(0, "a", "read", end)],
        // Under an id for which no name was given.
        vec![piece(0, "a", "read", ONE), piece(1, "b", "", TWO)],
        vec![piece(0, "a", "read", ONE), piece(None, "b", " ", TWO)],
    ] {
        let calls = finished(&unclear).unwrap();
        assert!(!calls.is_empty(), "{unclear:?}");
        for call in &calls {
            assert!(!call.name.is_empty() && call.refused.is_some(), "{call:?}");
        }
    }
    let blank = [piece(0, "a", "read", ""), piece(0, "b", "write", TWO)];
    assert_eq!(run(&blank), [call("b", "write", TWO)]);
}

#[test]
fn an_id_of_its_own_for_every_piece_is_one_call() {
    let (begin, end) = ONE.split_at(6);
    for name in ["", "read"] {
        let pieces = [piece(0, "a", "read", begin), piece(0, "b", name, end)];
        assert_eq!(run(&pieces), [call("a", "read", ONE)], "{name}");
    }
    let pieces = [
        piece(0, "a", "read", ""),
        piece(0, "b", "", begin),
        piece(0, "c", "", end),
    ];
    assert_eq!(run(&pieces), [call("a", "read", ONE)]);
    // Without an index, the piece's call cannot be identified.
    let pieces = [piece(None, "a", "read", begin), piece(None, "b", "", end)];
    assert!(run(&pieces).is_empty());
}

#[test]
fn arguments_without_any_name_are_a_failed_try() {
    for nameless in [
        vec![piece(0, "", "", ONE)],
        vec![piece(0, "a", "", ONE)],
        vec![piece(None, "", " ", ONE)],
    ] {
        let failure = finished(&nameless).unwrap_err();
        assert!(failure.message.contains("which tool"), "{failure:?}");
    }
    // A piece without any content is not a call.
    let nothing = [piece(0, "", "", ""), piece(1, "a", "", " ")];
    assert_eq!(finished(&nothing).unwrap(), []);
}

#[test]
fn a_call_that_the_limit_of_tokens_cut_before_its_arguments_is_refused() {
    let mut calls = Calls::default();
    calls.take(piece(0, "a", "list", ""));
    calls.take(piece(1, "b", "list", ""));
    let calls = calls.finish(&mut AnswerContext::default(), true).unwrap();
    let refused: Vec<bool> = calls
        .iter()
        .flatten()
        .map(|call| call.refused.is_some())
        .collect();
    assert_eq!(refused, [false, true]);
}

#[test]
fn parts_of_one_calls_arguments_are_no_calls() {
    let parts = [r#"{"note": "#, ONE, "}"];
    let in_text = [r#"{"note": ""#, r#"{"path": 1}"#, r#""}"#];
    let indexes: [[Option<u64>; 3]; 3] = [[Some(0); 3], [None; 3], [Some(0), Some(1), Some(2)]];
    for parts in [parts, in_text] {
        for index in indexes {
            for names in [["read"; 3], ["read", "read", ""], ["read", "", ""]] {
                let ids = ["a1", "a2", "a3"];
                let pieces: Vec<CallPiece<'_>> = (0..3)
                    .map(|at| piece(index[at], ids[at], names[at], parts[at]))
                    .collect();
                // Joined to the whole at the server's own index, or no call is executed.
                let whole: Value = serde_json::from_str(&parts.concat()).unwrap_or_default();
                for (_, _, arguments) in run(&pieces) {
                    assert_eq!(arguments, whole, "{pieces:?}");
                }
                if !names[1].is_empty() {
                    let two = [pieces[1], pieces[2]];
                    assert!(run(&two).is_empty(), "{two:?}");
                }
            }
        }
    }
    // Arguments that cannot be read make all calls at the index doubtful, whatever tool they call.
    let other = [piece(0, "a", "write", "{x}"), piece(0, "b", "read", ONE)];
    assert!(run(&other).is_empty());
    // If the index tells calls apart, one that the model wrote badly refuses only itself.
    let apart = [piece(0, "a", "write", "{x}"), piece(1, "b", "read", ONE)];
    assert_eq!(run(&apart), [call("b", "read", ONE)]);
    let apart = [piece(0, "a", "write", "{"), piece(1, "b", "read", ONE)];
    assert_eq!(run(&apart), [call("b", "read", ONE)]);
}

#[test]
fn a_name_in_parts_is_joined_to_a_tool_or_refused() {
    let known = || AnswerContext::with_tools(["list", "sessions_list", "read"]);
    let run = |known: AnswerContext, pieces: &[CallPiece<'_>]| {
        let calls = finished_with(known, pieces).unwrap().into_iter();
        let run = calls.filter(|call| call.refused.is_none());
        run.map(|call| call.name).collect::<Vec<_>>()
    };
    for joined in [
        [piece(0, "a", "sessions_", ""), piece(0, "", "list", ONE)],
        [piece(0, "a", "sessions_", ""), piece(0, "a", "list", ONE)],
        [
            piece(None, "a", "sessions_", ""),
            piece(None, "", "list", ONE),
        ],
        [
            piece(0, "a", "sessions_", ""),
            piece(0, "", "sessions_list", ONE),
        ],
    ] {
        assert_eq!(run(known(), &joined), ["sessions_list"], "{joined:?}");
        // The parts are not joined to a name that no tool has.
        assert!(
            run(AnswerContext::default(), &joined).is_empty(),
            "{joined:?}"
        );
    }
    for parts in [
        vec![piece(0, "a", "sessions_", ""), piece(0, "b", "list", ONE)],
        vec![piece(0, "a", "sessions_", ""), piece(1, "b", "list", ONE)],
        vec![piece(0, "a", "sessions_", ""), piece(1, "", "list", ONE)],
        vec![
            piece(0, "a", "ses", ""),
            piece(1, "b", "sions_", ""),
            piece(2, "c", "list", ONE),
        ],
        vec![piece(0, "a", "other_", ""), piece(0, "b", "list", ONE)],
        vec![piece(0, "a", "other_", ""), piece(0, "", "list", ONE)],
        vec![piece(0, "a", "list", ""), piece(0, "", "_other", ONE)],
        vec![piece(0, "a", "list", ONE), piece(0, "", "_other", "")],
    ] {
        assert!(run(known(), &parts).is_empty(), "{parts:?}");
    }
    // A call of a nonexistent tool, and one of another tool.
    let apart = [piece(0, "a", "other", ""), piece(1, "b", "list", ONE)];
    assert_eq!(run(known(), &apart), ["other", "list"]);
}
