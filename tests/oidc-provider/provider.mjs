// A real OpenID Connect provider for the stories: over TLS on a free port of 127.0.0.1, with one client, and with the
// library's own pages for people who log in. It ends with its standard input.
//
// Usage: node provider.mjs MODULES FOLDER    (FOLDER has cert.pem, key.pem and secret; FOLDER/issuer says where it is)
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { pathToFileURL } from 'node:url';

const [modules, folder] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
const read = (name) => readFileSync(`${folder}/${name}`, 'utf8').trim();

const server = createServer({ cert: read('cert.pem'), key: read('key.pem') });
server.listen(0, '127.0.0.1', () => {
  const issuer = `https://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'relay',
      client_secret: read('secret'),
      redirect_uris: [`${issuer}/not-yet`],
      grant_types: ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code'],
    }],
    features: { deviceFlow: { enabled: true } },
    claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email', 'email_verified'] },
    conformIdTokenClaims: false,
    cookies: { keys: [read('secret')] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({
        sub: id, preferred_username: id, email: `${id}@example.org`, email_verified: !id.startsWith('un'),
      }),
    }),
    pkce: { methods: ['S256'], required: () => true },
  });
  // The relay's address is known once it runs; it is compared to the letter.
  provider.Client.prototype.redirectUriAllowed = (uri) => uri === read('redirect_uri');
  server.on('request', provider.callback());
  writeFileSync(`${folder}/issuer.new`, `${issuer}\n`);
  renameSync(`${folder}/issuer.new`, `${folder}/issuer`);
});
process.stdin.resume().on('end', () => process.exit(0));
