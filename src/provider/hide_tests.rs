//! Tests of how much of a key remains in a provider's messages.

use proptest::prelude::*;

use super::*;
use crate::provider::key::secret;

const KEY: &str = "sk-proj-Zq81XvTn04WbLd77PhRc52Ym";

fn hidden(name: &'static str, value: &str) -> RequestSecrets {
    let mut headers = HeaderMap::new();
    headers.insert(name, secret(value).unwrap());
    RequestSecrets::of(&headers)
}

fn shown(text: &str) -> String {
    let mut text = text.to_owned();
    hidden("authorization", &format!("Bearer {KEY}")).in_place(&mut text);
    text
}

/// The length of the longest part of the key in the text, ignoring case.
fn longest_part(text: &str) -> usize {
    let (key, text) = (KEY.to_ascii_lowercase(), text.to_ascii_lowercase());
    let parts = (0..key.len()).flat_map(|from| (from + 1..=key.len()).map(move |to| (from, to)));
    let found = parts.filter(|(from, to)| text.contains(&key[*from..*to]));
    found.map(|(from, to)| to - from).max().unwrap_or(0)
}

#[test]
fn no_part_of_a_key_is_left_wherever_it_is_cut_or_masked() {
    for said in [
        format!("Incorrect API key provided: {KEY}."),
        format!("bad key {}", &KEY[..12]),
        format!("bad key ending in {}", &KEY[KEY.len() - 10..]),
        format!("bad key, its middle is {}", &KEY[9..17]),
        format!("bad key {}", KEY.to_uppercase()),
        format!("bad key {}****{}", &KEY[..8], &KEY[KEY.len() - 4..]),
        format!("bad key {}…{}", &KEY[..4], &KEY[KEY.len() - 4..]),
        format!("bad key {}...{}", &KEY[..3], &KEY[KEY.len() - 3..]),
        format!("bad key {}•••••{}", &KEY[..4], &KEY[KEY.len() - 4..]),
        format!("bad key **********{}", &KEY[KEY.len() - 4..]),
        format!("{}-{}", &KEY[..6], &KEY[6..14]),
    ] {
        let left = shown(&said);
        assert!(
            left.contains(REPLACEMENT) || left.contains("[secret:"),
            "{said} → {left}"
        );
        assert!(longest_part(&left) <= 3, "{said} → {left}");
    }
}

/// Number of key characters that remain in pieces of two or more.
fn left_in_pieces(text: &str) -> usize {
    let key = bare_letters(KEY);
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase);
    let pieces = words.filter(|word| word.len() >= 2 && key.contains(word.as_str()));
    pieces.map(|word| word.len()).sum()
}

#[test]
fn no_more_than_four_characters_of_a_key_are_left_however_it_is_written() {
    let (head, tail) = (&KEY[..4], &KEY[KEY.len() - 4..]);
    let every = |count: usize, between: &str| {
        let pieces = KEY.as_bytes().chunks(count);
        let pieces: Vec<&str> = pieces
            .map(|piece| std::str::from_utf8(piece).unwrap())
            .collect();
        pieces.join(between)
    };
    let backwards = backwards(KEY);
    for written in [
        every(4, " "),
        every(3, "-"),
        every(2, ":"),
        every(1, "."),
        every(1, "\n"),
        every(1, "\u{200b}"),
        every(4, " | "),
        backwards.clone(),
        backwards[4..16].to_owned(),
        format!("{head}[redacted]{tail}"),
        format!("{head}----{tail}"),
        format!("{head}____{tail}"),
        format!("{head} to {tail}"),
        format!("{head}<hidden>{tail}"),
        format!("begins with {head} and ends in {tail}"),
        format!("{head}REDACTED{tail}"),
        format!("ends {tail}, begins {head}"),
        "first Zq81, then 4WbL, then hRc5".to_owned(),
    ] {
        let left = shown(&format!("the key ({written}) is wrong"));
        assert!(left.contains(REPLACEMENT), "{written} → {left}");
        assert!(left_in_pieces(&left) <= 4, "{written} → {left}");
    }
    // This much may remain.
    for said in ["the key that ends in 52Ym", "a key sk- is wrong"] {
        assert_eq!(shown(said), said);
    }
}

#[test]
fn nothing_that_is_computed_from_a_key_is_left() {
    let sha256 = hex(digest::digest(&digest::SHA256, KEY.as_bytes()).as_ref());
    let bearer = base64(format!("user:{KEY}").as_bytes());
    let md5 = hex(&Md5::digest(KEY.as_bytes()));
    for derived in [
        sha256.clone(),
        sha256[..8].to_owned(),
        md5.clone(),
        md5[..12].to_owned(),
        md5[4..10].to_owned(),
        super::backwards(&md5),
        base64(&Md5::digest(KEY.as_bytes()))[0].clone(),
        base64(blake3::hash(KEY.as_bytes()).as_bytes())[0].clone(),
        sha256[sha256.len() - 12..].to_owned(),
        sha256.to_uppercase(),
        hex(digest::digest(&digest::SHA512, KEY.as_bytes()).as_ref()),
        hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, KEY.as_bytes()).as_ref()),
        blake3::hash(KEY.as_bytes()).to_hex().to_string(),
        hex(KEY.as_bytes()),
        base64(KEY.as_bytes())[0].clone(),
        base64(KEY.as_bytes())[1].clone(),
    ] {
        let left = shown(&format!("unknown credential ({derived}) here"));
        assert_eq!(
            left,
            format!("unknown credential ({REPLACEMENT}) here"),
            "{derived}"
        );
    }
    // Inside other base64, only the part that encodes the key can be recognized.
    let left = shown(&format!("unknown credential {}", bearer[0]));
    assert!(left.contains(REPLACEMENT) && left.len() < 40, "{left}");
    // A digest that cannot be computed here.
    for other in [
        "9e107d9d372bb6826bd81d3542a419d6",
        "9e107d9d372b",
        "nhB9nTcrtoJr2B01QqQZ1g",
    ] {
        let pad = if other.len() == 22 { "==" } else { "" };
        let left = shown(&format!("the key with the mark {other}{pad} is unknown"));
        assert_eq!(
            left,
            format!("the key with the mark {REPLACEMENT}{pad} is unknown")
        );
    }
    let pairs: Vec<&str> = (0..16).map(|at| &md5[2 * at..2 * at + 2]).collect();
    let left = shown(&format!("the key {} is unknown", pairs.join(":")));
    assert_eq!(left, format!("the key {REPLACEMENT} is unknown"));
}

#[test]
fn a_key_in_an_address_is_found_as_addresses_write_it() {
    let hidden = hidden("x-api-key", "abc+def/ghi=jkl mno");
    let mut text = "no such page: /v1?key=abc%2Bdef%2Fghi%3Djkl+mno".to_owned();
    hidden.in_place(&mut text);
    assert_eq!(text, format!("no such page: /v1?key={REPLACEMENT}"));
}

#[test]
fn what_is_not_of_the_key_stays() {
    for said in [
        "HTTP 429 Too Many Requests: slow down, try again in 20s",
        "model gpt-x does not exist (request req_011CSHoEeqs5C35K2UUqR7Fy)",
        "zu viele Anfragen … später",
        "x-request-id 4bf92f3577b34da6a3ce929d0e0e4736",
        "8192 tokens are the most (request 4bf92f3577b34da6a3ce929d0e0e4736)",
        "invalid key (request 4bf92f35-77b3-4da6-a3ce-929d0e0e4736)",
        "no such key at /v1/chat/Completions/2025",
    ] {
        assert_eq!(shown(said), said);
    }
    // A header without a key is only removed as a whole.
    let hidden = hidden("anthropic-beta", "context-management-2025");
    let mut text = "unknown beta context-management".to_owned();
    hidden.in_place(&mut text);
    assert_eq!(text, "unknown beta context-management");
}

#[test]
fn base64_is_what_others_write() {
    assert_eq!(base64(b"")[0], "");
    assert_eq!(base64(b"M")[0], "TQ");
    assert_eq!(base64(b"Ma")[0], "TWE");
    assert_eq!(base64(b"Man")[0], "TWFu");
    assert_eq!(base64(&[0xfb, 0xff])[0], "+/8");
    assert_eq!(base64(&[0xfb, 0xff])[1], "-_8");
}

proptest! {
    #[test]
    fn no_five_characters_of_a_key_are_left(
        from in 0usize..32, length in 0usize..33, before in "\\PC{0,12}", behind in "\\PC{0,12}"
    ) {
        let part = &KEY[from..(from + length).min(KEY.len())];
        let left = shown(&format!("{before}{part}{behind}"));
        prop_assert!(longest_part(&left) < PART, "{}", left);
    }
}
