{{- define "relay.name" -}}
{{- ternary .Release.Name (printf "%s-relay" .Release.Name) (contains "relay" .Release.Name) | trunc 43 | trimSuffix "-" }}
{{- end }}

{{- define "relay.selector" -}}
app.kubernetes.io/name: relay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "relay.labels" -}}
{{ include "relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "relay.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The Secret and the ConfigMap for the identity provider; nothing where there is none. */}}
{{- define "relay.oidc-secret" -}}
{{- if .Values.oidc.issuer }}{{ .Values.oidc.existingSecret }}{{ end }}
{{- end }}

{{- define "relay.oidc-ca" -}}
{{- if .Values.oidc.issuer }}{{ .Values.oidc.caFile.configMap }}{{ end }}
{{- end }}

{{/* The pod, the same on both databases but for its data volume. */}}
{{- define "relay.pod" -}}
metadata:
  labels:
    {{- include "relay.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if .Values.adminSecret.name }}
  # Which may write the admin Secret, and nothing else.
  serviceAccountName: {{ include "relay.name" . }}
  automountServiceAccountToken: true
  {{- else }}
  # It asks nothing of the cluster's API.
  automountServiceAccountToken: false
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: 60
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    # Else every start would open the relay's files to their group.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  containers:
    - name: relay
      image: {{ include "relay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        # Its own folder in the volume, which it makes with mode 0700.
        - name: RELAY_DATA_DIR
          value: /var/lib/relay/data
        - name: RELAY_LISTEN
          value: {{ printf "%s:8443" .Values.listenAddress | quote }}
        - name: RELAY_URL
          value: {{ .Values.url | quote }}
        {{- with .Values.trustDomain }}
        - name: RELAY_TRUST_DOMAIN
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.providerTenant }}
        - name: RELAY_PROVIDER_TENANT
          value: {{ . | quote }}
        {{- end }}
        - name: RELAY_MASTER_KEY_FILE
          value: /run/credentials/relay/relay.master-key
        # Says that the group may read there: a volume of a Secret can be shown to a user that is not root in no other way.
        - name: CREDENTIALS_DIRECTORY
          value: /run/credentials/relay
        {{- if eq .Values.database.kind "postgres" }}
        - name: RELAY_DATABASE_URL
          valueFrom:
            secretKeyRef:
              name: {{ .Values.database.postgres.secretName }}
              key: {{ .Values.database.postgres.key }}
        {{- end }}
        {{- with .Values.adminSecret.name }}
        - name: RELAY_BOOTSTRAP_SECRET
          value: {{ . | quote }}
        {{- end }}
        {{- if .Values.oidc.issuer }}
        - name: RELAY_OIDC_ISSUER
          value: {{ .Values.oidc.issuer | quote }}
        - name: RELAY_OIDC_CLIENT_ID
          value: {{ .Values.oidc.clientId | quote }}
        {{- if .Values.oidc.existingSecret }}
        - name: RELAY_OIDC_CLIENT_SECRET_FILE
          value: /run/oidc/secret/client-secret
        {{- end }}
        {{- with .Values.oidc.key }}
        - name: RELAY_OIDC_KEY
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.oidc.scopes }}
        - name: RELAY_OIDC_SCOPES
          value: {{ . | quote }}
        {{- end }}
        {{- if .Values.oidc.caFile.configMap }}
        - name: RELAY_OIDC_CA_FILE
          value: /run/oidc/ca/ca.crt
        {{- end }}
        {{- end }}
        {{- with .Values.trustedProxies }}
        - name: RELAY_TRUSTED_PROXIES
          value: {{ join "," . | quote }}
        {{- end }}
        {{- with .Values.auditDays }}
        - name: RELAY_AUDIT_DAYS
          value: {{ int . | quote }}
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - name: RELAY_METRICS_LISTEN
          value: {{ printf "%s:9464" .Values.listenAddress | quote }}
        {{- end }}
        {{- range $value, $variable := dict "perTokenPerMinute" "PER_TOKEN_PER_MINUTE" "perIpPerMinute" "PER_IP_PER_MINUTE" "healthPerMinute" "HEALTH_PER_MINUTE" "joinPerIpPerMinute" "JOIN_PER_IP_PER_MINUTE" "joinInFlight" "JOIN_IN_FLIGHT" }}
        {{- with index $.Values.limits $value }}
        - name: RELAY_LIMITS_{{ $variable }}
          value: {{ int . | quote }}
        {{- end }}
        {{- end }}
        - name: RELAY_LOG
          value: {{ .Values.log | quote }}
        - name: RELAY_LOG_FORMAT
          value: json
      ports:
        - name: https
          containerPort: 8443
        {{- if .Values.metrics.enabled }}
        - name: metrics
          containerPort: 9464
        {{- end }}
      # The first start makes the CA, an upgrade brings the schema up to date.
      startupProbe:
        httpGet: {scheme: HTTPS, port: https, path: /livez}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 150
      livenessProbe:
        httpGet: {scheme: HTTPS, port: https, path: /livez}
        periodSeconds: 20
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {scheme: HTTPS, port: https, path: /readyz}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        privileged: false
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: data
          mountPath: /var/lib/relay
        - name: master-key
          mountPath: /run/credentials/relay
          readOnly: true
        {{- if include "relay.oidc-secret" . }}
        - name: oidc-secret
          mountPath: /run/oidc/secret
          readOnly: true
        {{- end }}
        {{- if include "relay.oidc-ca" . }}
        - name: oidc-ca
          mountPath: /run/oidc/ca
          readOnly: true
        {{- end }}
  volumes:
    - name: master-key
      secret:
        secretName: {{ .Values.masterKey.secretName }}
        defaultMode: 0400
        items:
          - key: {{ .Values.masterKey.key }}
            path: relay.master-key
    {{- with include "relay.oidc-secret" . }}
    - name: oidc-secret
      secret:
        secretName: {{ . }}
        defaultMode: 0400
        items:
          - key: {{ $.Values.oidc.existingSecretKey }}
            path: client-secret
    {{- end }}
    {{- with include "relay.oidc-ca" . }}
    - name: oidc-ca
      configMap:
        name: {{ . }}
        items:
          - key: {{ $.Values.oidc.caFile.key }}
            path: ca.crt
    {{- end }}
    {{- if eq .Values.database.kind "postgres" }}
    # Only what each start makes anew: the admin credentials and the trust bundle.
    - name: data
      emptyDir:
        medium: Memory
        sizeLimit: 64Mi
    {{- end }}
  {{- if eq .Values.database.kind "postgres" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "relay.selector" . | nindent 10 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
