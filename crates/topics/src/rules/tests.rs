use super::*;

const PLAIN: State = State { passing: 0, ending: 0, templates: 0 };

fn to(from: u32, symbol: u32, matching: u32, to: u32) -> Transition {
    Transition { from, symbol, matching, to }
}

/// Everybody: read `s/+`, read and write `d/%c/#`, deny reading `s/secret`; ada also writes `#`.
fn small() -> RuleParts {
    let read_write = flag::ALLOW_READ | flag::ALLOW_WRITE;
    RuleParts {
        symbols: vec!["s".into(), "d".into(), "secret".into()],
        templates: vec![vec![Piece::ClientId]],
        states: vec![
            State::default(),
            PLAIN,                                                         // 1: the common root
            PLAIN,                                                         // 2: s
            State { ending: flag::ALLOW_READ, ..PLAIN },                   // 3: s/+
            State { ending: flag::ALLOW_READ | flag::DENY_READ, ..PLAIN }, // 4: s/secret
            State { templates: 1, ..PLAIN },                               // 5: d
            State { passing: read_write, ..PLAIN },                        // 6: d/%c
            State { passing: flag::ALLOW_WRITE, ..PLAIN },                 // 7: ada's root
        ],
        transitions: vec![
            to(1, 1, 0, 2),
            to(1, 2, 0, 5),
            to(2, OTHER, 0, 3),
            to(2, 3, 0, 4),
            to(5, OTHER, 1, 6),
        ],
        scopes: vec![("ada".into(), Entrance { plain: 7, dollar: DEAD })],
        common: Entrance { plain: 1, dollar: DEAD },
    }
}

fn table() -> RuleTable {
    RuleTable::build(small()).unwrap()
}

fn lamp(client_id: &str) -> Who<'_> {
    Who { user: "", client_id }
}

#[test]
fn deny_wins_and_silence_is_no() {
    let table = table();
    assert!(table.may(lamp("lamp"), Action::Read, "s/1"));
    assert!(!table.may(lamp("lamp"), Action::Read, "s/secret"));
    assert!(!table.may(lamp("lamp"), Action::Write, "s/1"));
    assert!(!table.may(lamp("lamp"), Action::Read, "s/1/2"));
    assert!(!table.may(lamp("lamp"), Action::Read, "s"));
    assert!(!table.may(lamp("lamp"), Action::Read, "$SYS/broker"));
}

#[test]
fn own_rules_speak_before_common_ones() {
    let table = table();
    let ada = Who { user: "ada", client_id: "x" };
    assert!(table.may(ada, Action::Write, "s/secret"));
    assert!(!table.may(ada, Action::Read, "s/secret"), "her own rules say nothing about reading");
    assert!(!table.may(ada, Action::Write, "$SYS/x"), "a wildcard does not reach `$` topics");
}

// req: SEC-18
#[test]
fn ids_never_widen_a_template() {
    let table = table();
    assert!(table.may(lamp("lamp"), Action::Write, "d/lamp/a/b"));
    assert!(table.may(lamp("lamp"), Action::Write, "d/lamp"));
    assert!(!table.may(lamp("lamp"), Action::Write, "d/other"));
    for id in ["+", "#", "a/b", "$SYS", "", "a\0b", "lamp/#"] {
        assert!(!table.may(lamp(id), Action::Write, &format!("d/{id}")), "{id:?}");
        assert!(!table.may(lamp(id), Action::Write, "d/lamp"), "{id:?}");
        assert!(!table.may_subscribe(lamp(id), "d/+"), "{id:?}");
    }
    let huge = "x".repeat(65_000);
    assert!(table.may(lamp(&huge), Action::Write, &format!("d/{huge}")));
    assert!(!table.may(lamp(&huge), Action::Write, "d/x"));
}

#[test]
fn filters_are_granted_when_they_can_bring_something() {
    let table = table();
    for (filter, expected) in [
        ("#", true),
        ("s/#", true),
        ("+/+", true),
        ("s/1", true),
        ("s/secret", false),
        ("s", false),
        ("s/1/2", false),
        ("d/lamp/x", true),
        ("d/+", true),
        ("d/other", false),
        ("d/other/#", false),
        ("x/#", false),
        ("$SYS/#", false),
    ] {
        assert_eq!(table.may_subscribe(lamp("lamp"), filter), expected, "{filter}");
    }
}

#[test]
fn a_long_topic_costs_its_length() {
    let table = table();
    let topic = format!("d/lamp{}", "/x".repeat(30_000));
    let decision = table.decide(lamp("lamp"), Action::Write, &topic);
    assert!(decision.allowed);
    assert!(decision.steps <= 4, "the walk ends with the rules: {}", decision.steps);
}

#[test]
fn tables_nobody_compiles_are_refused() {
    let broken = |change: fn(&mut RuleParts)| {
        let mut parts = small();
        change(&mut parts);
        RuleTable::build(parts).unwrap_err()
    };
    broken(|parts| parts.transitions[0].to = 99);
    broken(|parts| parts.transitions[0].from = 99);
    broken(|parts| parts.transitions[0].symbol = 9);
    broken(|parts| parts.transitions[0].matching = 1);
    broken(|parts| parts.transitions.push(to(1, 1, 0, 3)));
    broken(|parts| parts.transitions.push(to(DEAD, 1, 0, 3)));
    broken(|parts| parts.states[1].templates = 2);
    broken(|parts| parts.states[1].ending = 0x80);
    broken(|parts| parts.states[0].ending = 1);
    broken(|parts| parts.states.clear());
    broken(|parts| parts.common.plain = 8);
    broken(|parts| parts.scopes[0].1.dollar = 8);
    broken(|parts| parts.templates = vec![Vec::new(); 33]);
}
