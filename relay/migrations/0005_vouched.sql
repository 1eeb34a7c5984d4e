-- Whether an authority of the pool vouched for the endorsement key when it was proved: without that, what its certificate
-- says of the TPM's maker is the machine's claim. 0 or 1; of what came before nobody has noted it.
ALTER TABLE nodes ADD COLUMN ek_vouched BIGINT NOT NULL DEFAULT 0;
ALTER TABLE join_requests ADD COLUMN ek_vouched BIGINT NOT NULL DEFAULT 0;
