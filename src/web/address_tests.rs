//! Every spelling of a forbidden address is refused, and public ones are not.

use proptest::prelude::*;
use url::Url;

use super::*;

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let parse = |list: &[&str]| list.iter().map(|text| WebTarget::parse(text).unwrap()).collect();
    Rules { allow: parse(allow), deny: parse(deny), private: false }
}

/// Judges the host of a URL as `fetch` does.
fn judged(rules: &Rules, url: &str) -> Result<Named, Code> {
    let url = Url::parse(url).map_err(|_| Code::InvalidArguments)?;
    let port = url.port_or_known_default().unwrap();
    rules.host(&url.host().unwrap(), port).map_err(|refusal| {
        assert!(refusal.hint.is_some());
        refusal.code
    })
}

/// The spellings in which browsers and resolvers read an IPv4 address.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let whole = u32::from(address);
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{whole}"),
        format!("0x{whole:x}"),
        format!("0X{whole:X}"),
        format!("0{whole:o}"),
        format!("{a}.{}", whole & 0xff_ffff),
        format!("{a}.{b}.{}", whole & 0xffff),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0x{a:x}.0{b:o}.{}", whole & 0xffff),
        format!("%3{}{}", a.to_string().chars().next().unwrap(), {
            let rest: String = a.to_string().chars().skip(1).collect();
            format!("{rest}.{b}.{c}.{d}")
        }),
        // Full-width digits and dots become plain ones.
        format!("{a}.{b}.{c}.{d}")
            .chars()
            .map(|ch| match ch {
                '.' => '\u{3002}',
                digit => char::from_u32(0xff10 + digit.to_digit(10).unwrap()).unwrap(),
            })
            .collect(),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{:x}:{:x}]", whole >> 16, whole & 0xffff),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
    ]
}

/// Forms that are refused whatever they hold.
fn tunnels(address: Ipv4Addr) -> Vec<String> {
    let (high, low) = (u32::from(address) >> 16, u32::from(address) & 0xffff);
    vec![
        format!("[::{high:x}:{low:x}]"),
        format!("[::ffff:0:{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::1]"),
        format!("[2001::{:x}:{:x}]", !high & 0xffff, !low & 0xffff),
        format!("[64:ff9b:1::{high:x}:{low:x}]"),
        format!("[fe80::5efe:{high:x}:{low:x}]"),
        format!("[2600::5efe:{high:x}:{low:x}]"),
    ]
}

const FORBIDDEN: [&str; 30] = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.9",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.0.1",
    "10.1.2.3",
    "192.168.255.255",
];

const PUBLIC: [&str; 13] = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.1",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "198.20.0.0",
    "223.255.255.255",
];

// covers: BI-13b
#[test]
fn no_spelling_of_a_forbidden_address_passes() {
    let none = rules(&[], &[]);
    for text in FORBIDDEN {
        let address: Ipv4Addr = text.parse().unwrap();
        assert!(kind(IpAddr::V4(address)).is_some(), "{text}");
        for host in spellings(address).iter().chain(&tunnels(address)) {
            assert_eq!(judged(&none, &format!("http://{host}/")), Err(Code::PolicyDenied), "{text} as {host}");
        }
    }
    for text in PUBLIC {
        let address: Ipv4Addr = text.parse().unwrap();
        for host in spellings(address) {
            let passed = judged(&none, &format!("http://{host}/"));
            assert!(matches!(passed, Ok(Named::Address(_))), "{text} as {host}: {passed:?}");
        }
        for host in tunnels(address) {
            assert_eq!(judged(&none, &format!("http://{host}/")), Err(Code::PolicyDenied), "{text} as {host}");
        }
    }
}

#[test]
fn forbidden_ipv6_addresses_and_local_names_are_refused() {
    let none = rules(&[], &[]);
    for host in [
        "[::]",
        "[::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "[fc00::1]",
        "[fdff:ffff::1]",
        "[fe80::1]",
        "[febf::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[100::1]",
        "[5f00::1]",
        "[4000::1]",
        "[::2]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "l\u{24de}calhost",
        "\u{ff4c}ocalhost",
    ] {
        assert_eq!(judged(&none, &format!("https://{host}/x")), Err(Code::PolicyDenied), "{host}");
    }
    for host in ["[fe80::1%25eth0]", "[fe80::1%eth0]", "[::1", "a b", "1.2.3.4.5", "256.1.1.1", "0x100000000"] {
        assert!(judged(&none, &format!("https://{host}/x")).is_err(), "{host}");
    }
    for host in ["[2606:4700::1111]", "[2a00:1450::1]", "[2001:4860:4860::8888]", "[64:ff9b::8.8.8.8]"] {
        assert!(matches!(judged(&none, &format!("https://{host}/x")), Ok(Named::Address(_))), "{host}");
    }
    let name = Named::Name { name: "docs.example".into(), trusted: false };
    assert_eq!(judged(&none, "https://DOCS.example./x"), Ok(name));
}

#[test]
fn the_world_file_opens_and_closes_exactly_what_it_names() {
    let open = rules(
        &["127.0.0.1:8080", "10.0.0.0/8", "intra.example", "*.corp.example:443"],
        &["10.9.0.0/16", "bad.example"],
    );
    let ok = |url: &str| judged(&open, url).is_ok();
    assert!(ok("http://127.0.0.1:8080/") && ok("http://2130706433:8080/") && ok("http://[::ffff:127.0.0.1]:8080/"));
    assert!(ok("http://localhost:8080/") && !ok("http://localhost/") && !ok("http://127.0.0.1/"));
    assert!(!ok("http://127.0.0.2:8080/"));
    assert!(ok("http://10.1.1.1/") && !ok("http://10.9.1.1/") && !ok("http://[64:ff9b::10.9.1.1]/"));
    assert!(!ok("http://bad.example/") && !ok("http://BAD.example./") && ok("http://x.bad.example/"));
    let trusted = |url: &str| matches!(judged(&open, url), Ok(Named::Name { trusted: true, .. }));
    assert!(trusted("http://intra.example:9/") && trusted("https://a.corp.example/"));
    assert!(!trusted("http://a.corp.example/") && !trusted("http://x.intra.example/"));
    // The address of a trusted name may be private, but not denied.
    let private: IpAddr = "10.1.1.1".parse().unwrap();
    assert!(rules(&[], &[]).resolved(private, 80, true).is_ok());
    assert!(rules(&[], &["10.0.0.0/8"]).resolved(private, 80, true).is_err());
    assert!(Rules::of_operator().resolved(private, 80, false).is_ok());
}

proptest! {
    /// The judge against the standard library's own words.
    #[test]
    fn no_address_that_the_standard_library_knows_as_special_passes(bits: u32) {
        let address = Ipv4Addr::from(bits);
        let special = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_multicast()
            || address.is_broadcast() || address.is_unspecified() || address.is_documentation();
        if special {
            prop_assert!(kind(IpAddr::V4(address)).is_some());
        }
    }

    #[test]
    fn an_address_is_judged_alike_in_every_spelling(bits: u32) {
        let address = Ipv4Addr::from(bits);
        let none = rules(&[], &[]);
        let plain = kind_v4(address).is_none();
        for host in spellings(address) {
            prop_assert_eq!(judged(&none, &format!("http://{host}/")).is_ok(), plain, "{}", host);
        }
        for host in tunnels(address) {
            prop_assert!(judged(&none, &format!("http://{host}/")).is_err(), "{}", host);
        }
    }

    #[test]
    fn only_global_ipv6_addresses_pass(bits: u128) {
        let address = Ipv6Addr::from(bits);
        if kind(IpAddr::V6(address)).is_none() {
            prop_assert!(bits >> 125 == 1 || address.to_ipv4_mapped().is_some() || bits >> 32 == 0x64_ff9b << 64);
        }
    }

    #[test]
    fn no_host_makes_the_judge_panic(host in "\\PC{0,30}") {
        if let Ok(url) = Url::parse(&format!("http://{host}/")) {
            let _ = rules(&["10.0.0.0/8"], &[]).host(&url.host().unwrap(), 80);
        }
    }
}
