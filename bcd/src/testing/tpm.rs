//! What tests do to a TPM beside bcd: as its administrator, as a program that leaks, as the relay.

use super::Swtpm;
use shared::tpm::NodeKeyPublic;
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    str::FromStr as _,
    thread,
};
use tss_esapi::{
    Context,
    attributes::NvIndexAttributesBuilder,
    handles::{AuthHandle, NvIndexHandle, NvIndexTpmHandle, TpmHandle},
    interface_types::{
        algorithm::HashingAlgorithm,
        resource_handles::{Hierarchy, NvAuth, Provision},
        session_handles::AuthSession,
    },
    structures::{Auth, Digest, MaxNvBuffer, Name, NvPublicBuilder, Public},
    tcti_ldr::TctiNameConf,
    traits::UnMarshall as _,
};

fn open(swtpm: &Swtpm) -> Context {
    Context::new(TctiNameConf::from_str(&swtpm.tcti()).unwrap()).unwrap()
}

/// The contents of TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET, for these TPMT_PUBLICs of an endorsement key and a node
/// key.
pub(crate) fn make_credential(swtpm: &Swtpm, ek: &[u8], key: &[u8], secret: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut context = open(swtpm);
    let name = NodeKeyPublic::parse(key).unwrap().name().as_bytes().to_vec();
    let ek = context.load_external_public(Public::unmarshall(ek).unwrap(), Hierarchy::Null).unwrap();
    let (secret, name) = (Digest::try_from(secret).unwrap(), Name::try_from(name).unwrap());
    let (blob, encrypted) = context.make_credential(ek, secret, name).unwrap();
    (blob.value().to_vec(), encrypted.value().to_vec())
}

/// Sets a hierarchy's password.
pub(crate) fn set_password(swtpm: &Swtpm, hierarchy: Hierarchy) {
    let hierarchy = match hierarchy {
        Hierarchy::Endorsement => AuthHandle::Endorsement,
        _ => AuthHandle::Owner,
    };
    let password = Auth::try_from(b"secret".to_vec()).unwrap();
    open(swtpm)
        .execute_with_session(Some(AuthSession::Password), |context| {
            context.hierarchy_change_auth(hierarchy, password)
        })
        .unwrap();
}

/// Removes what is at this NV index, and writes these bytes there, as the TPM's maker.
pub(crate) fn write_nv(swtpm: &Swtpm, index: u32, bytes: Option<Vec<u8>>) {
    let mut context = open(swtpm);
    let handle = NvIndexTpmHandle::new(index).unwrap();
    if let Ok(old) = context.tr_from_tpm_public(TpmHandle::NvIndex(handle)) {
        context
            .execute_with_session(Some(AuthSession::Password), |context| {
                context.nv_undefine_space(Provision::Platform, NvIndexHandle::from(old))
            })
            .unwrap();
    }
    let Some(bytes) = bytes else { return };
    let attributes = NvIndexAttributesBuilder::new()
        .with_pp_write(true)
        .with_pp_read(true)
        .with_owner_read(true)
        .with_auth_read(true)
        .with_no_da(true)
        .with_platform_create(true)
        .build()
        .unwrap();
    let public = NvPublicBuilder::new()
        .with_nv_index(handle)
        .with_index_name_algorithm(HashingAlgorithm::Sha256)
        .with_index_attributes(attributes)
        .with_data_area_size(bytes.len())
        .build()
        .unwrap();
    context.execute_with_session(Some(AuthSession::Password), |context| {
        let index = context.nv_define_space(Provision::Platform, None, public).unwrap();
        for (number, part) in bytes.chunks(512).enumerate() {
            let at = u16::try_from(number * 512).unwrap();
            let part = MaxNvBuffer::try_from(part).unwrap();
            context.nv_write(NvAuth::Platform, index, part, at).unwrap();
        }
    });
}

/// TPM_ST_NO_SESSIONS and TPM_ST_SESSIONS (TPM 2.0 part 2, 6.9).
const NO_SESSIONS: u16 = 0x8001;
const SESSIONS: u16 = 0x8002;

/// A connection without the library: whatever it loads stays in the TPM when it goes.
struct Raw(TcpStream);

impl Raw {
    fn open(swtpm: &Swtpm) -> Self {
        let port = swtpm.tcti().rsplit_once('=').unwrap().1.parse::<u16>().unwrap();
        Self(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    /// Sends a command; answers its response code and what follows.
    fn call(&mut self, tag: u16, code: u32, rest: &[u8]) -> (u32, Vec<u8>) {
        let size = u32::try_from(10 + rest.len()).unwrap();
        let head = [&tag.to_be_bytes()[..], &size.to_be_bytes(), &code.to_be_bytes()].concat();
        self.0.write_all(&[&head, rest].concat()).unwrap();
        let mut head = [0; 10];
        self.0.read_exact(&mut head).unwrap();
        let size = u32::from_be_bytes(head[2..6].try_into().unwrap());
        let mut rest = vec![0; usize::try_from(size).unwrap() - head.len()];
        self.0.read_exact(&mut rest).unwrap();
        (u32::from_be_bytes(head[6..10].try_into().unwrap()), rest)
    }

    /// TPM2_CreatePrimary under the owner, with the empty password there.
    fn create_primary(&mut self, password: &[u8], public: &[u8]) -> (u32, Vec<u8>) {
        let sensitive = [&sized(password)[..], &[0, 0]].concat();
        let rest = [
            &0x4000_0001_u32.to_be_bytes()[..],
            &authorization(b""),
            &sized(&sensitive),
            &sized(public),
            &[0, 0],
            &[0; 4],
        ];
        self.call(SESSIONS, 0x131, &rest.concat())
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The authorization area with this password (part 1, 18.6).
fn authorization(password: &[u8]) -> Vec<u8> {
    let session = [&0x4000_0009_u32.to_be_bytes()[..], &[0, 0], &[1], &sized(password)].concat();
    [&u32::try_from(session.len()).unwrap().to_be_bytes()[..], &session].concat()
}

/// A storage key on P-256 with these TPMA_OBJECT.
fn storage_key(attributes: u32) -> Vec<u8> {
    [
        &[0x00, 0x23, 0x00, 0x0b][..],
        &attributes.to_be_bytes(),
        &[0, 0],
        &[0, 6, 0, 128, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10],
        &[0, 0, 0, 0],
    ]
    .concat()
}

/// Loads keys and starts sessions, as many of each as told, and is gone without flushing them. What finds no room any more
/// is not there.
pub(crate) fn leak(swtpm: &Swtpm, times: usize) {
    let mut raw = Raw::open(swtpm);
    for _ in 0..times {
        raw.create_primary(b"", &storage_key(0x0003_0472));
        // TPM2_StartAuthSession, a policy session with SHA-256.
        let null = 0x4000_0007_u32.to_be_bytes();
        let rest = [&null[..], &null, &sized(&[1; 16]), &[0, 0], &[1], &[0, 0x10], &[0, 0x0b]];
        raw.call(NO_SESSIONS, 0x176, &rest.concat());
    }
}

/// Brings the TPM into lock-out, by wrong passwords for a key that is protected against guessing.
pub(crate) fn lock_out(swtpm: &Swtpm) {
    let mut raw = Raw::open(swtpm);
    // TPM2_DictionaryAttackParameters: one try, and a long time to wait.
    let times = [1_u32, 10_000, 10_000].map(u32::to_be_bytes).concat();
    let rest = [&0x4000_000a_u32.to_be_bytes()[..], &authorization(b""), &times].concat();
    assert_eq!(raw.call(SESSIONS, 0x13a, &rest).0, 0);
    let (code, made) = raw.create_primary(b"right", &storage_key(0x0003_0072));
    assert_eq!(code, 0);
    let wrong = [&made[..4], &authorization(b"wrong")].concat();
    // TPM2_Create: the password is judged before the parameters.
    let codes: Vec<u32> = (0..4).map(|_| raw.call(SESSIONS, 0x153, &wrong).0).collect();
    assert!(codes.contains(&0x921), "no lock-out: {codes:x?}");
    // TPM2_FlushContext.
    assert_eq!(raw.call(NO_SESSIONS, 0x165, &made[..4]).0, 0);
}

/// The setting `tcti` for something that answers every command of a TPM with this response code.
pub(crate) fn answering(code: u32) -> String {
    let (commands, control, port) = loop {
        let commands = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = commands.local_addr().unwrap().port();
        let Some(next) = port.checked_add(1) else { continue };
        if let Ok(control) = TcpListener::bind(("127.0.0.1", next)) {
            break (commands, control, port);
        }
    };
    // TPM_ST_NO_SESSIONS, the response's size, its code.
    let response = [&[0x80, 0x01][..], &10_u32.to_be_bytes(), &code.to_be_bytes()].concat();
    thread::spawn(move || answer_all(&commands, &response));
    thread::spawn(move || answer_all(&control, &[0; 4]));
    format!("swtpm:host=127.0.0.1,port={port}")
}

fn answer_all(listener: &TcpListener, answer: &[u8]) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let answer = answer.to_vec();
        thread::spawn(move || {
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) && stream.write_all(&answer).is_ok() {}
        });
    }
}
