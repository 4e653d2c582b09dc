//! Judges hosts and addresses: which of them an agent may reach. Pure; the connection goes to the address that
//! was judged (see [`crate::dial`]).
//!
//! An address that could lead to this machine, its network or its provider's metadata must never pass without an entry
//! of the world file. What is not known to be public is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ghost_config::plan::WebPlan;
use ghost_config::plan::web::WebTarget;
use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use url::Host;

/// What the world file allows and denies.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    allow: Vec<WebTarget>,
    deny: Vec<WebTarget>,
    /// Whether private addresses need no entry: for services that the world file names itself.
    private: bool,
}

/// A host before it is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A name to resolve. `trusted` if the world file allows it whatever its address.
    Name {
        /// In lower case, without a dot at the end.
        name: String,
        /// Whether the name itself is allowed.
        trusted: bool,
    },
    /// An address, already judged.
    Address(IpAddr),
}

impl Rules {
    /// The rules of a world file.
    #[must_use]
    pub fn new(plan: &WebPlan) -> Self {
        Self { allow: plan.allow.clone(), deny: plan.deny.clone(), private: false }
    }

    /// The rules for services that the operator names, such as a search service on this machine.
    #[must_use]
    pub fn of_operator() -> Self {
        Self { private: true, ..Self::default() }
    }

    /// Judges a host as a URL or a request names it.
    ///
    /// # Errors
    /// `PolicyDenied` with what is wrong with it.
    pub fn host(&self, host: &Host<&str>, port: u16) -> Result<Named, Refusal> {
        let name = match host {
            Host::Ipv4(address) => return self.address(IpAddr::V4(*address), port).map(Named::Address),
            Host::Ipv6(address) => return self.address(IpAddr::V6(*address), port).map(Named::Address),
            Host::Domain(name) => name.trim_end_matches('.').to_ascii_lowercase(),
        };
        if self.deny.iter().any(|target| target.names(&name, port)) {
            return Err(refused(&format!("{}:{port}", shown(&name, 120)), "the world file denies it (web.deny)"));
        }
        let trusted = self.allow.iter().any(|target| target.names(&name, port));
        let local = ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"].contains(&name.as_str())
            || name.ends_with(".localhost");
        if name.is_empty() || (local && !trusted && !self.private && !self.allows_loopback(port)) {
            return Err(refused(&format!("{}:{port}", shown(&name, 120)), "it names this machine"));
        }
        Ok(Named::Name { name, trusted })
    }

    /// Judges an address that a connection would go to. Returns it in the form to connect to.
    ///
    /// # Errors
    /// `PolicyDenied` with what kind of address it is.
    pub fn address(&self, address: IpAddr, port: u16) -> Result<IpAddr, Refusal> {
        self.resolved(address, port, false)
    }

    /// As [`address`](Self::address), for an address of a name that may be trusted.
    pub(crate) fn resolved(&self, address: IpAddr, port: u16, trusted: bool) -> Result<IpAddr, Refusal> {
        let address = address.to_canonical();
        let place = || match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        };
        // An entry for an IPv4 network also means the IPv6 addresses that lead into it.
        let covers = |target: &WebTarget| {
            target.contains(address, port)
                || embedded(address).is_some_and(|inner| target.contains(IpAddr::V4(inner), port))
        };
        if port == 0 {
            return Err(refused(&place(), "there is no port 0"));
        }
        if self.deny.iter().any(covers) {
            return Err(refused(&place(), "the world file denies it (web.deny)"));
        }
        if trusted || self.private || self.allow.iter().any(covers) {
            return Ok(address);
        }
        match kind(address) {
            None => Ok(address),
            Some(kind) => Err(refused(&place(), &format!("it is {kind}"))),
        }
    }

    fn allows_loopback(&self, port: u16) -> bool {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        loopback.iter().any(|address| self.allow.iter().any(|target| target.contains(*address, port)))
    }
}

fn refused(place: &str, why: &str) -> Refusal {
    Refusal::new(Code::PolicyDenied, format!("{place} may not be reached: {why}"))
        .hint("use a public address, or ask the operator to add it to `web.allow` of the world file")
}

/// What kind of address this is, if it is not public.
#[must_use]
pub fn kind(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        // Services of cloud providers for the machines that run in them; also 100.100.100.200 and 192.0.0.192, below.
        [169, 254, 169, 254 | 253 | 123] | [168, 63, 129, 16] | [169, 254, 170, 2] => {
            Some("a metadata service of a cloud provider")
        }
        [0, ..] => Some("an address of this host"),
        [10, ..] | [192, 168, ..] => Some("a private address"),
        [172, second, ..] if second & 0xf0 == 16 => Some("a private address"),
        [127, ..] => Some("a loopback address"),
        [169, 254, ..] => Some("a link-local address"),
        [100, second, ..] if second & 0xc0 == 64 => Some("an address of a provider's inner network"),
        [192, 0, 0, _] | [192, 88, 99, _] => Some("an address of a protocol"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("an address of documentation"),
        [198, 18 | 19, ..] => Some("an address of a benchmark"),
        [first, ..] if first & 0xf0 == 224 => Some("a multicast address"),
        [first, ..] if first >= 240 => Some("a reserved address"),
        _ => None,
    }
}

fn kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an address of this host"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
            Some("a metadata service of a cloud provider")
        }
        // NAT64 leads to the address inside; networks without IPv4 need it.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => embedded(IpAddr::V6(address)).and_then(kind_v4),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("a private address"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Some("a private address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
        // Teredo, ORCHID and others below 2001:0200::, and 6to4: they hide another address, and nobody serves pages there.
        [0x2001, second, ..] if second < 0x200 => Some("an address of a tunnel or a protocol"),
        [0x2002, ..] => Some("an address of a tunnel or a protocol"),
        [0x2001, 0xdb8, ..] => Some("an address of documentation"),
        [0x3fff, second, ..] if second < 0x1000 => Some("an address of documentation"),
        // ISATAP: the interface is an IPv4 address, in whatever network.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some("an address of a tunnel or a protocol"),
        [first, ..] if first & 0xe000 == 0x2000 => None,
        _ => Some("a reserved address"),
    }
}

/// The IPv4 address that a NAT64 address leads to.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() else { return None };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
