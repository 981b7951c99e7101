//! Rules which identity may have which name, and whom it may reach.

use crate::name::ServiceName;
use cci::{Identity, Names};

/// Rules about services, by the identities that partners have proved ([`cci::Security`]). The first rule that fits a name counts; a name
/// that no rule fits is open to everybody. Partners without an identity fit no rule's names, and are kept out.
///
/// ```
/// use cci::Names;
/// use cci_ripc::Policy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Policy::default()
///     .rule("bank", Names::parse("bank.example")?, Names::parse("*.branch.example")?)
///     .rule("public-*", Names::parse("web.example")?, Names::Everyone);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: String,
    register: Names,
    reach: Names,
}

impl Policy {
    /// This policy with one more rule: `pattern` is a service's name, or the beginning of one with `*` behind it.
    #[must_use]
    pub fn rule(mut self, pattern: &str, register: Names, reach: Names) -> Policy {
        self.rules.push(Rule { pattern: pattern.to_owned(), register, reach });
        self
    }

    /// Whether a partner may have this name.
    pub fn may_register(&self, service: &ServiceName, partner: Option<&Identity>) -> bool {
        self.find(service).is_none_or(|rule| partner.is_some_and(|partner| rule.register.contain(partner)))
    }

    /// Whether a partner may reach this service.
    pub fn may_reach(&self, service: &ServiceName, partner: Option<&Identity>) -> bool {
        self.find(service).is_none_or(|rule| partner.is_some_and(|partner| rule.reach.contain(partner)))
    }

    fn find(&self, service: &ServiceName) -> Option<&Rule> {
        self.rules.iter().find(|rule| match rule.pattern.strip_suffix('*') {
            Some(start) => service.as_str().starts_with(start),
            None => service.as_str() == rule.pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let policy = Policy::default()
            .rule("a-b", Names::parse("").unwrap(), Names::parse("").unwrap())
            .rule("a-*", Names::Everyone, Names::Everyone);
        let name = |name| ServiceName::new(name).unwrap();
        assert!(!policy.may_reach(&name("a-b"), None), "nobody");
        assert!(!policy.may_register(&name("a-c"), None), "who has no identity is nobody");
        assert!(policy.may_reach(&name("other"), None), "no rule");
    }
}
