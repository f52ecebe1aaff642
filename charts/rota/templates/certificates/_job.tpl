{{/* Names of the Secrets that the Job writes, as a JSON list: the authority's is the first. */}}
{{- define "rota.certificates.secrets" -}}
{{- $names := list (include "rota.authority.name" .) (include "rota.tls.secret" (list . "operator")) -}}
{{- if .Values.coordinator.enabled -}}
{{- $names = append $names (include "rota.tls.secret" (list . "coordinator")) -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Pod that issues certificates which are missing, and renews those that expire. */}}
{{- define "rota.certificates.pod" -}}
metadata:
  labels:
    {{- include "rota.selector" (list . "certificates") | nindent 4 }}
    {{- with .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ include "rota.certificates.name" . }}
  automountServiceAccountToken: true
  {{- include "rota.pod" . | nindent 2 }}
  containers:
    - name: certificates
      image: {{ include "rota.image" (list . .Values.operator.image) }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      args:
        - certificates
        - --namespace={{ .Release.Namespace }}
        - --authority={{ include "rota.authority.name" . }}
        - --days={{ .Values.tls.job.days }}
        - --certificate={{ include "rota.tls.secret" (list . "operator") }}={{ include "rota.operator.dnsNames" . | fromJsonArray | join "," }}
        {{- if .Values.coordinator.enabled }}
        - --certificate={{ include "rota.tls.secret" (list . "coordinator") }}={{ include "rota.coordinator.dnsNames" . | fromJsonArray | join "," }}
        {{- end }}
        - --log-format=json
      {{- include "rota.container" . | nindent 6 }}
      resources:
        {{- toYaml .Values.tls.job.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    # Keys are files for as long as OpenSSL needs them.
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end -}}
