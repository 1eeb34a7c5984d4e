//! What a provider may do wrong.

/// What it does not do as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Lie {
    Nothing,
    WrongNonce,
    NoNonce,
    OtherAudience,
    SeveralAudiences,
    OtherParty,
    OtherIssuer,
    Expired,
    FromTheFuture,
    FromThePast,
    NotYet,
    Unsigned,
    SignedWithThePublicKey,
    SignedByAnother,
    UnknownKey,
    EmptySubject,
    LongSubject,
    LongToken,
    NoToken,
    NoJson,
    LongAnswer,
    RefusesCode,
    Fails,
    Stalls,
    RedirectsToken,
    LongDiscovery,
    RedirectsDiscovery,
    DiscoversAnother,
    DiscoversPlainHttp,
    NoKeys,
    LongKeys,
    AnswersForAnother,
    NoDevices,
    SlowsDown,
    DevicePageOverHttp,
}

impl Lie {
    /// Lies of the ID token.
    pub const OF_TOKENS: &[Self] = &[
        Self::WrongNonce,
        Self::NoNonce,
        Self::OtherAudience,
        Self::SeveralAudiences,
        Self::OtherParty,
        Self::OtherIssuer,
        Self::Expired,
        Self::FromTheFuture,
        Self::FromThePast,
        Self::NotYet,
        Self::Unsigned,
        Self::SignedWithThePublicKey,
        Self::SignedByAnother,
        Self::UnknownKey,
        Self::EmptySubject,
        Self::LongSubject,
        Self::LongToken,
    ];
    /// Lies of the answers around it, once the relay knows where the provider is.
    pub const OF_ANSWERS: &[Self] = &[
        Self::NoToken,
        Self::NoJson,
        Self::LongAnswer,
        Self::RefusesCode,
        Self::Fails,
        Self::RedirectsToken,
        Self::AnswersForAnother,
    ];
    /// Lies of its documents: a relay that starts now can't use it.
    pub const OF_DOCUMENTS: &[Self] = &[
        Self::LongDiscovery,
        Self::RedirectsDiscovery,
        Self::DiscoversAnother,
        Self::DiscoversPlainHttp,
        Self::NoKeys,
        Self::LongKeys,
    ];
}
