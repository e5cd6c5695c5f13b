//! Random headers of strangers: each extractor agrees with a naive model of its documentation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderValue, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::Key;

use super::{AddressExtractor, ClientIp, Head, KeyExtractor, PeerAddr, basic_user, bearer, cookie};

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn request(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(PeerAddr(SocketAddr::new(PEER.into(), 4_711)));
    for line in lines {
        request.headers_mut().append(name, HeaderValue::from_bytes(line.as_ref()).unwrap());
    }
    request
}

fn key(extractor: &impl KeyExtractor, name: &'static str, lines: &[impl AsRef<[u8]>]) -> Option<Key> {
    extractor.extract(&Head::from(&request(name, lines)))
}

/// An entry of `x-forwarded-for` or an element of `forwarded`.
#[derive(Clone, Debug)]
enum Hop {
    Address(IpAddr),
    Garbage,
    Empty,
}

/// Half of them are those of trusted proxies.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = |net: u8| any::<[u8; 2]>().prop_map(move |[a, b]| Ipv4Addr::new(net, 0, a, b));
    let v6 = |net: u16| any::<u16>().prop_map(move |host| Ipv6Addr::new(net, 0, 0, 1, 0, 0, 0, host).into());
    let v4s = prop_oneof![v4(10), v4(198)];
    prop_oneof![3 => v4s.prop_map(IpAddr::V4), 1 => v6(0xfd00), 1 => v6(0x2001)]
}

fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.segments()[0] == 0xfd00,
    }
}

/// An address as proxies write it.
fn node(address: IpAddr) -> BoxedStrategy<String> {
    let of_v6 = |address: Ipv6Addr| {
        [format!("[{address}]"), format!("[{address}]:443"), format!("[{address}]:_p1"), address.to_string()]
    };
    let forms = match address {
        IpAddr::V4(v4) => {
            let as_v4 = [v4.to_string(), format!("{v4}:8080"), format!("{v4}:_x.y-z")];
            as_v4.into_iter().chain(of_v6(v4.to_ipv6_mapped())).collect()
        }
        IpAddr::V6(v6) => of_v6(v6).to_vec(),
    };
    (select(forms), any::<bool>())
        .prop_map(|(node, quoted)| if quoted { format!("\"{node}\"") } else { node })
        .boxed()
}

/// An element of `forwarded` around the value of `for`.
fn element(node: String) -> impl Strategy<Value = String> {
    const OTHERS: [&str; 4] =
        ["proto=https", "by=10.0.0.9", "host=\"x;for=6.6.6.6\"", "note=\"a, b \\\" c\""];
    let others = || vec(select(&OTHERS[..]), 0..3);
    (others(), select(&["for", "For", "FOR"][..]), others()).prop_map(move |(before, name, after)| {
        let ours = format!("{name}={node}");
        let pairs: Vec<&str> = before.into_iter().chain([&*ours]).chain(after).collect();
        pairs.join(";")
    })
}

/// An entry and its text, for either header.
fn entry(forwarded: bool) -> impl Strategy<Value = (Hop, String)> {
    let of_address = address().prop_flat_map(move |address| {
        let text = node(address);
        let text = if forwarded { text.prop_flat_map(element).boxed() } else { text };
        text.prop_map(move |text| (Hop::Address(address), text))
    });
    const GARBAGE: [&str; 10] =
        ["unknown", "_hidden", "1.2.3", "[::1", "::1]", "1.2.3.4:port", "-", "for=", "for=_x", "a;b"];
    let garbage = select(&GARBAGE[..]).prop_map(|text| (Hop::Garbage, text.to_owned()));
    let empty = Just((Hop::Empty, String::new()));
    let blanks = || select(&["", " ", "\t "][..]);
    (blanks(), prop_oneof![8 => of_address, 1 => garbage, 1 => empty], blanks())
        .prop_map(|(before, (entry, text), after)| (entry, format!("{before}{text}{after}")))
}

/// The documentation of [`ClientIp`], step by step. `None` if it reads more than these entries.
fn walk(entries: &[Hop], hops: Option<usize>) -> Option<IpAddr> {
    let mut client = IpAddr::V4(PEER);
    let mut passed = 0;
    for entry in entries.iter().rev() {
        if !hops.map_or(is_proxy(client), |hops| passed < hops) {
            return Some(client);
        }
        match entry {
            Hop::Empty => {}
            Hop::Garbage => return Some(client),
            Hop::Address(address) => {
                client = *address;
                passed += 1;
            }
        }
    }
    let goes_on = hops.map_or(is_proxy(client), |hops| passed < hops);
    if goes_on { None } else { Some(client) }
}

fn client(header: &'static str, hops: Option<usize>, lines: &[impl AsRef<[u8]>]) -> IpAddr {
    let extractor = ClientIp::from_header(header);
    let extractor = match hops {
        Some(hops) => extractor.trusting_hops(hops),
        None => extractor.trusting(["10.0.0.0/8", "fd00::/16"]),
    };
    extractor.address(&Head::from(&request(header, lines))).expect("the peer is known")
}

/// Lines of one header, as entries and as text.
fn forwarded() -> impl Strategy<Value = (&'static str, Vec<Hop>, Vec<String>)> {
    let headers = select(&["x-forwarded-for", "forwarded"][..]);
    headers.prop_flat_map(|header| {
        vec(vec(entry(header == "forwarded"), 1..4), 0..4).prop_map(move |lines| {
            let texts = lines.iter().map(|line| {
                let texts: Vec<&str> = line.iter().map(|(_, text)| &**text).collect();
                texts.join(",")
            });
            let texts = texts.collect();
            (header, lines.into_iter().flatten().map(|(entry, _)| entry).collect(), texts)
        })
    })
}

/// What a client may send: everything that a header can have.
fn forged() -> impl Strategy<Value = Vec<u8>> {
    let signs = select(&b"\"\\,;=: for[]10.\t\xff"[..]);
    vec(prop_oneof![signs, 32_u8..127], 0..30)
}

proptest! {
    // `PROPTEST_CASES` sets more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_client_is_found_as_the_walk_from_the_right_finds_it(
        (header, entries, lines) in forwarded(), hops in proptest::option::of(0_usize..4),
    ) {
        let addresses = entries.iter().rev().filter(|entry| !matches!(entry, Hop::Empty));
        let mut addresses = addresses.map_while(|entry| match entry {
            Hop::Address(address) => Some(*address),
            _ => None,
        });
        // All are trusted, so the leftmost is the client.
        let expected = walk(&entries, hops).or_else(|| addresses.by_ref().last()).unwrap_or(PEER.into());
        prop_assert_eq!(client(header, hops, &lines), expected);
    }

    #[test]
    fn what_the_client_forged_changes_no_address_that_a_proxy_wrote(
        (header, entries, mut lines) in forwarded(),
        forged in forged(),
        hops in proptest::option::of(0_usize..4),
    ) {
        if let Some(expected) = walk(&entries, hops) {
            let mut all = vec![forged];
            if let Some(first) = lines.first_mut() {
                all[0].extend_from_slice(b",");
                all[0].extend_from_slice(first.as_bytes());
                all.extend(lines.drain(1..).map(String::into_bytes));
            }
            prop_assert_eq!(client(header, hops, &all), expected, "{:?}", all);
        }
    }

    #[test]
    fn a_bearer_token_is_read_as_the_grammar_says(
        line in "[ \t]{0,2}(Bearer|bEARER|Basic|Bear)[ \t:]{0,2}[ab.=,\" ]{0,4}[\t ]{0,2}",
    ) {
        let text = line.trim_matches([' ', '\t']);
        let (scheme, token) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let token = token.trim_start_matches([' ', '\t']);
        let characters = token.trim_end_matches('=');
        let is_token = !characters.is_empty() && characters.chars().all(|c| "ab.".contains(c));
        let expected = (scheme.eq_ignore_ascii_case("bearer") && is_token).then(|| Key::from(token));
        prop_assert_eq!(key(&bearer(), "authorization", &[line]), expected);
    }

    #[test]
    fn two_bearer_tokens_are_one_key_if_and_only_if_they_are_equal(
        tokens in [r"[aA~/-]{1,2}=?", r"[aA~/-]{1,2}=?"],
        schemes in ["[Bb]earer[ \t]{1,2}", "[Bb]EARER[ \t]{1,2}"],
    ) {
        let keys = [0, 1].map(|n| key(&bearer(), "authorization", &[format!("{}{}", schemes[n], tokens[n])]));
        prop_assert!(keys[0].is_some());
        prop_assert_eq!(keys[0] == keys[1], tokens[0] == tokens[1]);
    }

    #[test]
    fn the_basic_user_is_what_stands_before_the_first_colon(
        credentials in vec(prop_oneof![Just(b':'), any::<u8>()], 0..12), padded in any::<bool>(),
        scheme in "[Bb]asic[ \t]{1,2}",
    ) {
        let engine = if padded { STANDARD } else { STANDARD_NO_PAD };
        let line = format!("{scheme}{}", engine.encode(&credentials));
        let mut fields = credentials.splitn(2, |byte| *byte == b':');
        let (user, password) = (fields.next().unwrap_or_default(), fields.next());
        let is_user = password.is_some() && !user.iter().any(|byte| *byte < 32 || *byte == 127);
        prop_assert_eq!(key(&basic_user(), "authorization", &[line]), is_user.then(|| Key::from_bytes(user)));
    }

    /// A value is `None` in a pair of another cookie.
    #[test]
    fn a_session_is_one_key_however_its_cookies_are_written(
        pairs in vec(
            (proptest::option::of("[ab=]{0,2}"), any::<[bool; 5]>(), select(&["", "", "", "\"", "%22"][..])),
            0..5,
        ),
    ) {
        let mut lines = vec![String::new()];
        for (value, [blank, encoded, named, line, other], quotes) in &pairs {
            let mut text = value.clone().unwrap_or_default();
            if *encoded {
                text = text.replace('a', "%61").replace('=', "%3D");
            }
            let name = match (value, named, other) {
                (Some(_), false, _) => "session",
                (Some(_), true, _) => "sess%69on",
                (None, _, false) => "sessions",
                (None, _, true) => "Session",
            };
            let blank = if *blank { " " } else { "" };
            let pair = format!("{blank}{name}{blank}={blank}{quotes}{text}{quotes}{blank}");
            match lines.last_mut() {
                Some(last) if !line && !last.is_empty() => *last = format!("{last};{pair}"),
                _ => lines.push(pair),
            }
        }
        let values: Vec<&str> = pairs.iter().filter_map(|(value, ..)| value.as_deref()).collect();
        let expected = values.first().map(|first| {
            let is_one = values.iter().all(|value| value == first);
            if is_one { Key::from(*first) } else { Key::network(PEER.into(), 64) }
        });
        prop_assert_eq!(key(&cookie("session"), "cookie", &lines), expected, "{:?}", lines);
    }
}
