//! TPMT_PUBLIC taken apart (TPM 2.0 part 2, 12.2.4): every field as the number that came, nothing left over.
//!
//! Here is only the layout. Which values are right is said by the rules on endorsement keys and node keys.

use crate::api::node::MAX_TPM_BYTES;

/// TPM_ALG_ID (part 2, 6.3), those that are named anywhere.
pub(super) mod alg {
    pub(in crate::tpm) const RSA: u16 = 0x0001;
    pub(in crate::tpm) const AES: u16 = 0x0006;
    pub(in crate::tpm) const SHA256: u16 = 0x000b;
    pub(in crate::tpm) const SHA384: u16 = 0x000c;
    pub(in crate::tpm) const NULL: u16 = 0x0010;
    pub(in crate::tpm) const RSASSA: u16 = 0x0014;
    pub(in crate::tpm) const RSAPSS: u16 = 0x0016;
    pub(in crate::tpm) const OAEP: u16 = 0x0017;
    pub(in crate::tpm) const ECDSA: u16 = 0x0018;
    pub(in crate::tpm) const ECDH: u16 = 0x0019;
    pub(in crate::tpm) const ECC: u16 = 0x0023;
    pub(in crate::tpm) const CFB: u16 = 0x0043;
}

/// TPM_ECC_CURVE (part 2, 6.4).
pub(super) mod curve {
    pub(in crate::tpm) const P256: u16 = 0x0003;
    pub(in crate::tpm) const P384: u16 = 0x0004;
}

/// Bytes that are no TPMT_PUBLIC whose layout is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPublic {
    /// Longer than any key that is taken.
    #[error("must be a TPMT_PUBLIC of at most {MAX_TPM_BYTES} bytes")]
    TooLong,
    /// It ends within a field.
    #[error("must be a whole TPMT_PUBLIC; it ends before its {0} does")]
    Truncated(&'static str),
    /// Something follows.
    #[error("must be one TPMT_PUBLIC with nothing after it; {0} bytes follow")]
    Trailing(usize),
    /// An algorithm whose parameters could be anything.
    #[error("must be an RSA or ECC key without rare algorithms; its {field} is {value:#06x}")]
    Unknown {
        /// The field.
        field: &'static str,
        /// What it is.
        value: u16,
    },
}

/// TPMT_PUBLIC; unions without their absent members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) name_alg: u16,
    pub(super) attributes: u32,
    pub(super) auth_policy: &'a [u8],
    /// Key bits and mode of the symmetric cipher, which is AES; absent for none.
    pub(super) symmetric: Option<(u16, u16)>,
    /// The scheme and its hash; absent for none.
    pub(super) scheme: Option<(u16, u16)>,
    pub(super) key: KeyFields<'a>,
}

/// What depends on the type: the rest of the parameters, and `unique`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFields<'a> {
    Rsa { bits: u16, exponent: u32, modulus: &'a [u8] },
    Ecc { curve: u16, has_kdf: bool, x: &'a [u8], y: &'a [u8] },
}

impl<'a> Fields<'a> {
    /// Reads the fields.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, InvalidPublic> {
        if bytes.len() > MAX_TPM_BYTES {
            return Err(InvalidPublic::TooLong);
        }
        let mut reader = Reader(bytes);
        let kind = reader.u16("type")?;
        let fields = Self {
            name_alg: reader.u16("nameAlg")?,
            attributes: reader.u32("objectAttributes")?,
            auth_policy: reader.sized("authPolicy")?,
            symmetric: reader.symmetric()?,
            scheme: reader.scheme()?,
            key: match kind {
                alg::RSA => KeyFields::Rsa {
                    bits: reader.u16("keyBits")?,
                    exponent: reader.u32("exponent")?,
                    modulus: reader.sized("modulus")?,
                },
                alg::ECC => KeyFields::Ecc {
                    curve: reader.u16("curve")?,
                    has_kdf: reader.kdf()?,
                    x: reader.sized("x")?,
                    y: reader.sized("y")?,
                },
                value => return Err(InvalidPublic::Unknown { field: "type", value }),
            },
        };
        match reader.0.len() {
            0 => Ok(fields),
            left => Err(InvalidPublic::Trailing(left)),
        }
    }
}

/// What is left to read. Numbers are big-endian.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], InvalidPublic> {
        let (head, rest) = self.0.split_first_chunk().ok_or(InvalidPublic::Truncated(field))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, InvalidPublic> {
        self.array(field).map(u16::from_be_bytes)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, InvalidPublic> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// A TPM2B: a 16-bit size and that many bytes.
    fn sized(&mut self, field: &'static str) -> Result<&'a [u8], InvalidPublic> {
        let size = usize::from(self.u16(field)?);
        let (head, rest) = self.0.split_at_checked(size).ok_or(InvalidPublic::Truncated(field))?;
        self.0 = rest;
        Ok(head)
    }

    /// TPMT_SYM_DEF_OBJECT (part 2, 11.1.7).
    fn symmetric(&mut self) -> Result<Option<(u16, u16)>, InvalidPublic> {
        match self.u16("symmetric algorithm")? {
            alg::NULL => Ok(None),
            alg::AES => Ok(Some((self.u16("symmetric keyBits")?, self.u16("symmetric mode")?))),
            value => Err(InvalidPublic::Unknown { field: "symmetric algorithm", value }),
        }
    }

    /// TPMT_RSA_SCHEME or TPMT_ECC_SCHEME (part 2, 11.2.4.2 and 11.2.5.6).
    fn scheme(&mut self) -> Result<Option<(u16, u16)>, InvalidPublic> {
        match self.u16("scheme")? {
            alg::NULL => Ok(None),
            scheme @ (alg::RSASSA | alg::RSAPSS | alg::OAEP | alg::ECDSA | alg::ECDH) => {
                Ok(Some((scheme, self.u16("scheme's hash")?)))
            }
            value => Err(InvalidPublic::Unknown { field: "scheme", value }),
        }
    }

    /// TPMT_KDF_SCHEME (part 2, 11.2.3.3): every one but NULL has a hash.
    fn kdf(&mut self) -> Result<bool, InvalidPublic> {
        match self.u16("kdf")? {
            alg::NULL => Ok(false),
            _ => self.u16("kdf's hash").map(|_| true),
        }
    }
}
